//! The routes `…/fs`: files of sessions.

mod change;
mod record;
mod transfer;
mod watch;

pub(crate) use self::{
    change::{
        __path_create_directory, __path_delete_directory, __path_delete_file, __path_move_path,
        __path_set_file_permissions, create_directory, delete_directory, delete_file, move_path, set_file_permissions,
    },
    transfer::{
        __path_download_dir_zip, __path_file_info, __path_list_files, __path_read_file, __path_upload_files,
        __path_upload_zip, __path_write_file, MAX_UPLOAD, download_dir_zip, file_info, list_files, read_file,
        upload_files, upload_response, upload_zip, write_file,
    },
    watch::{
        __path_start_fs_watch, __path_stop_fs_watch, __path_stream_fs_events, start_fs_watch, stop_fs_watch,
        stream_fs_events,
    },
};
