DROP TABLE shared_secret;
