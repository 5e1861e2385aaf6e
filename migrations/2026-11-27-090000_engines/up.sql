-- The engine of browsers, and why the last start of a pool's browsers failed, null after a start that succeeded.
ALTER TABLE browser_pools ADD COLUMN engine text NOT NULL DEFAULT 'local', ADD COLUMN blocked_reason text;
ALTER TABLE browsers ADD COLUMN engine text NOT NULL DEFAULT 'local';
ALTER TABLE sessions ADD COLUMN engine text NOT NULL DEFAULT 'local';
