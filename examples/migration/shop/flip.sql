update flags set is_on = 1 where name = 'read_customers';
