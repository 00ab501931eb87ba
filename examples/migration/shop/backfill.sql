insert into customers (id, name, email) select id, name, email from users;
