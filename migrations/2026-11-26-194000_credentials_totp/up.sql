-- The parameters of one-time codes. Null: SHA1, 6 digits, 30 seconds, which all secrets had before.
ALTER TABLE credentials ADD COLUMN totp_algorithm text CONSTRAINT credentials_totp_algorithm_check CHECK (
    totp_algorithm IN ('SHA1', 'SHA256', 'SHA512')
);
ALTER TABLE credentials ADD COLUMN totp_digits integer;
ALTER TABLE credentials ADD COLUMN totp_period_seconds integer;
