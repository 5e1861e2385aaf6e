DROP TABLE credential_providers;
