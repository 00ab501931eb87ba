create table customers (id integer primary key, name text not null, email text not null unique);
create view people as
    select id, name, email from users where (select is_on from flags where name = 'read_customers') = 0
    union all
    select id, name, email from customers where (select is_on from flags where name = 'read_customers') = 1;
