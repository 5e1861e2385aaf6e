DROP TABLE auth_flows;
DROP TABLE auth_connections;
