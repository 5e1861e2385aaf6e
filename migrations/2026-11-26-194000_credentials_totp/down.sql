ALTER TABLE credentials DROP COLUMN totp_period_seconds;
ALTER TABLE credentials DROP COLUMN totp_digits;
ALTER TABLE credentials DROP COLUMN totp_algorithm;
