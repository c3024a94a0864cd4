-- Version 5: the key that ends when a renewed certificate is used.
ALTER TABLE certificate ADD COLUMN replaces BLOB;
