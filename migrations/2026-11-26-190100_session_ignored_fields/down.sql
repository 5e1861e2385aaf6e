DROP TABLE session_ignored_fields;
