ALTER TABLE browsers DROP COLUMN network;
ALTER TABLE sessions DROP COLUMN network;
ALTER TABLE browser_pools DROP COLUMN network;
