DROP INDEX browser_pools_profile_id_idx;
ALTER TABLE browsers DROP COLUMN save_profile, DROP COLUMN profile_version_id, DROP COLUMN profile_id;
ALTER TABLE sessions DROP COLUMN save_profile, DROP COLUMN profile_version_id, DROP COLUMN profile_id;
ALTER TABLE browser_pools
    DROP COLUMN refresh_on_profile_update, DROP COLUMN save_profile, DROP COLUMN profile_version_id, DROP COLUMN profile_id;
ALTER TABLE profiles DROP CONSTRAINT profiles_version_id_fkey;
DROP TABLE profile_versions;
DROP TABLE profiles;
