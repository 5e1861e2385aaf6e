DROP TABLE credential_values;
DROP TABLE credentials;
