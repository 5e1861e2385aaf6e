DROP TABLE blob_stores;
