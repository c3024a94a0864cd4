int count(const char *text);
