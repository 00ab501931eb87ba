update flags set is_on = 0 where name = 'read_customers';
