ALTER TABLE proxies DROP COLUMN failure;
