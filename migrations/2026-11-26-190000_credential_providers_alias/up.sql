-- Whether the provider's creator named the type "onepassword", which responses repeat.
ALTER TABLE credential_providers ADD COLUMN is_onepassword boolean NOT NULL DEFAULT false;
