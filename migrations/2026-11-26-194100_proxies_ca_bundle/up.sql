-- The only authorities that the certificate of an https proxy may be from, in PEM; null: those that the machine trusts.
ALTER TABLE proxies ADD COLUMN ca_bundle text;
