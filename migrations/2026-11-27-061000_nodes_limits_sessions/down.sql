ALTER TABLE nodes DROP COLUMN limits_sessions;
