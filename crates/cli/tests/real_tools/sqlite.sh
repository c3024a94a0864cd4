# shop.db exists, with one row.
step 0 sqlite3 shop.db 'pragma journal_mode=wal; create table sales (id integer primary key, item text, price int)'
step 0 sqlite3 shop.db "with recursive n(i) as (select 1 union all select i + 1 from n where i < 10000)
    insert into sales select i, 'item ' || i, i * 7 % 1000 from n"
line 0 'for i in 1 2 3 4; do
    sqlite3 -cmd ".timeout 20000" shop.db "begin immediate; insert into sales (price) values (-1); commit" &
done; wait; sqlite3 shop.db "select count(*) from sales where price = -1"'
step 0 sqlite3 shop.db 'select count(*), sum(price), max(id) from sales; select * from old; pragma integrity_check'
step 0 sqlite3 shop.db 'create index by_price on sales (price); explain query plan select * from sales where price = 3'
line 0 'printf "select count(*) from sales;\npragma wal_checkpoint(truncate);\n" | sqlite3 shop.db'
step 0 sqlite3 shop.db 'delete from sales where id % 2; vacuum; pragma integrity_check'
step 1 sqlite3 shop.db 'select * from no_such_table'
line 0 'sqlite3 shop.db .dump | sha256sum'
step 0 sqlite3 new.db 'create table t (x); insert into t values (1); select * from t'
line 0 'ls | sort'
