//! `…/process`: programs inside a session.

mod executed;
mod handlers;

pub(crate) use self::handlers::{
    __path_execute_process, __path_get_process_status, __path_kill_process, __path_resize_process,
    __path_spawn_process, __path_stream_process_output, __path_write_process_stdin, execute_process,
    get_process_status, kill_process, resize_process, spawn_process, stream_process_output, write_process_stdin,
};
