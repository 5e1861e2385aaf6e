//! The routes `…/fs`: files of sessions.

mod change;
mod record;
mod transfer;
mod upload;
mod watch;

pub(crate) use self::transfer::{MAX_UPLOAD, upload_response};
use self::{
    change::{CreateDirectory, MovePath, OnePath, SetPermissions},
    record::{AnyBytes, FileInfo},
    transfer::{PathParams, WriteFileParams},
    upload::{FilesForm, ZipForm},
    watch::{FileSystemEvent, FsWatch, StartFsWatch},
};
use crate::operation::{BYTES, Operations, Refusal};

const NO_PATH: Refusal = ("404", "The session or the path does not exist");
const NOT_DIRECTORY: Refusal = ("400", "The path breaks a rule, or is not a directory");
const NOT_PERMITTED: Refusal = ("403", "The session's user may not do that");
const NOT_READABLE: Refusal = ("403", "The session's user may not read it");
const NOT_WRITABLE: Refusal = ("403", "The session's user may not write there");
const TOO_LARGE: Refusal = ("413", "The body is longer than 4 GiB");
const DISK_FULL: Refusal = ("429", "The session's disk is full");

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Files", "The session does not exist");
    api.get("/browsers/{id_or_name}/fs/list_files", "list_files", transfer::list_files)
        .summary("Lists the entries of a directory, sorted by the bytes of their names.")
        .query::<PathParams>()
        .returns_list::<FileInfo>()
        .refuses([NOT_DIRECTORY, NOT_READABLE, NO_PATH]);
    api.get("/browsers/{id_or_name}/fs/file_info", "file_info", transfer::file_info)
        .summary("Describes the file or directory at a path.")
        .query::<PathParams>()
        .returns::<FileInfo>()
        .refuses([("403", "The session's user may not see it"), NO_PATH]);
    api.get("/browsers/{id_or_name}/fs/read_file", "read_file", transfer::read_file)
        .summary("Returns the content of a file.")
        .query::<PathParams>()
        .content::<AnyBytes>("200", BYTES, "The content")
        .refuses([
            ("400", "The path breaks a rule, or is a directory"),
            ("403", "The session's user may not read it, or it is not a regular file"),
            NO_PATH,
        ]);
    api.get("/browsers/{id_or_name}/fs/download_dir_zip", "download_dir_zip", transfer::download_dir_zip)
        .summary("Downloads a directory as a ZIP archive, which is packed while it is sent.")
        .query::<PathParams>()
        .content::<AnyBytes>("200", "application/zip", "The archive")
        .refuses([NOT_DIRECTORY, NOT_READABLE, NO_PATH]);
    api.put("/browsers/{id_or_name}/fs/write_file", "write_file", transfer::write_file)
        .summary("Writes a file. An existing file is replaced.")
        .query::<WriteFileParams>()
        .bytes::<AnyBytes>()
        .no_content("Written")
        .refuses([
            ("400", "A parameter breaks a rule, or the path is a directory"),
            NOT_WRITABLE,
            ("404", "The session or the directory does not exist"),
            TOO_LARGE,
            DISK_FULL,
        ]);
    api.post("/browsers/{id_or_name}/fs/upload", "upload_files", upload::upload_files)
        .summary("Uploads several files: all of them or none.")
        .form::<FilesForm>()
        .no_content("Uploaded")
        .refuses([("400", "A field breaks a rule, or the form cannot be read"), NOT_WRITABLE, TOO_LARGE, DISK_FULL]);
    api.post("/browsers/{id_or_name}/fs/upload_zip", "upload_zip", upload::upload_zip)
        .summary("Uploads and unpacks a ZIP archive: all of it or nothing. Existing files are replaced.")
        .form::<ZipForm>()
        .no_content("Unpacked")
        .refuses([
            ("400", "A field breaks a rule, or the archive is not safe to unpack"),
            NOT_WRITABLE,
            TOO_LARGE,
            DISK_FULL,
        ]);
    api.put("/browsers/{id_or_name}/fs/set_file_permissions", "set_file_permissions", change::set_file_permissions)
        .summary("Sets the permissions of a file or a directory.")
        .body::<SetPermissions>()
        .no_content("Set")
        .refuses([NOT_PERMITTED, NO_PATH]);
    api.put("/browsers/{id_or_name}/fs/create_directory", "create_directory", change::create_directory)
        .summary("Creates a directory and its missing parents. An existing directory is not an error.")
        .body::<CreateDirectory>()
        .no_content("Created")
        .refuses([NOT_PERMITTED, ("409", "A file with this path exists"), DISK_FULL]);
    api.put("/browsers/{id_or_name}/fs/delete_directory", "delete_directory", change::delete_directory)
        .summary("Deletes a directory with everything in it.")
        .body::<OnePath>()
        .no_content("Deleted")
        .refuses([NOT_DIRECTORY, NOT_PERMITTED, NO_PATH]);
    api.put("/browsers/{id_or_name}/fs/delete_file", "delete_file", change::delete_file)
        .summary("Deletes a file. A symbolic link is deleted itself.")
        .body::<OnePath>()
        .no_content("Deleted")
        .refuses([("400", "The path breaks a rule, or is a directory"), NOT_PERMITTED, NO_PATH]);
    api.put("/browsers/{id_or_name}/fs/move", "move_path", change::move_path)
        .summary("Moves or renames a file or a directory.")
        .body::<MovePath>()
        .no_content("Moved")
        .refuses([NOT_PERMITTED, NO_PATH, ("409", "The destination exists"), DISK_FULL]);
    api.post("/browsers/{id_or_name}/fs/watch", "start_fs_watch", watch::start_fs_watch)
        .summary("Starts to watch a directory. Changes are buffered, up to a bound, until they are read.")
        .body::<StartFsWatch>()
        .created::<FsWatch>()
        .refuses([NOT_DIRECTORY, NOT_READABLE, NO_PATH, ("429", "The session has 16 watches")]);
    api.get("/browsers/{id_or_name}/fs/watch/{watch_id}/events", "stream_fs_events", watch::stream_fs_events)
        .summary(
            "Streams the changes in a watched directory. A later reader replaces an earlier one. When changes were lost, the watch \
             ends; the next request for it says why.",
        )
        .streams::<FileSystemEvent>()
        .refuses([("404", "The session or the watch does not exist, or the watch has ended")]);
    api.delete("/browsers/{id_or_name}/fs/watch/{watch_id}", "stop_fs_watch", watch::stop_fs_watch)
        .summary("Ends a watch.")
        .no_content("Ended")
        .refuses([("404", "The session or the watch does not exist")]);
}
