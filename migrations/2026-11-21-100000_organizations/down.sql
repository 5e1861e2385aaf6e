DROP TABLE users;
DROP TABLE organizations;
DROP COLLATION name_ci;
