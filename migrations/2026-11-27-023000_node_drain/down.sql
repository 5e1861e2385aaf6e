ALTER TABLE nodes DROP COLUMN drain_ends_at;
