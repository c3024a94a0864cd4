"""What the tests of this small project test."""

import sqlite3


def square(number):
    return number * number


def total(path, rows):
    with sqlite3.connect(path) as database:
        database.execute("create table if not exists sales (item text, price int)")
        database.executemany("insert into sales values (?, ?)", rows)
        return database.execute("select sum(price) from sales").fetchone()[0]
