ALTER TABLE proxies DROP COLUMN ca_bundle;
