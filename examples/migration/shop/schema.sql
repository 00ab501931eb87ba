create table users (id integer primary key, name text not null, email text not null unique, source text not null);
create table flags (name text primary key, is_on integer not null);
insert into flags values ('read_customers', 0);
