-- The network configuration of browsers; null if they have none.
ALTER TABLE browser_pools ADD COLUMN network jsonb;
ALTER TABLE sessions ADD COLUMN network jsonb;
ALTER TABLE browsers ADD COLUMN network jsonb;
