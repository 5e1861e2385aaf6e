//! The routes `…/process`: programs inside a session.

mod executed;
mod handlers;

#[cfg(any(test, feature = "openapi"))]
pub(crate) use self::handlers::BASE64_PATTERN;
use self::handlers::{
    Done, ExecuteProcess, ExecutedProcess, KillProcess, ProcessEvent, ResizeProcess, SpawnProcess, SpawnedProcess,
    StatusBody, WriteProcessStdin, WrittenProcessStdin,
};
use crate::operation::{Operations, Refusal};

const OTHER_USER: Refusal = ("400", "A field breaks a rule, or asks for another user");

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Processes", "The session or the process does not exist");
    api.post("/browsers/{id_or_name}/process/exec", "execute_process", handlers::execute_process)
        .summary(
            "Runs a program inside a session and waits for its end. At its timeout, or when the caller hangs up, it is killed with all \
             processes that it has started.",
        )
        .body::<ExecuteProcess>()
        .returns::<ExecutedProcess>()
        .refuses([OTHER_USER, ("404", "The session does not exist"), ("429", "16 callers wait for programs of the session")])
        .fails("The timeout is reached, or the session does not respond");
    api.post("/browsers/{id_or_name}/process/spawn", "spawn_process", handlers::spawn_process)
        .summary(
            "Starts a program inside a session. The last MiB of its output is stored until ten minutes after its end.",
        )
        .body::<SpawnProcess>()
        .created::<SpawnedProcess>()
        .refuses([OTHER_USER, ("404", "The session does not exist"), ("429", "64 processes of the session run")]);
    api.get("/browsers/{id_or_name}/process/{process_id}/status", "get_process_status", handlers::get_process_status)
        .summary("Returns the state of a program.")
        .returns::<StatusBody>();
    api.post("/browsers/{id_or_name}/process/{process_id}/stdin", "write_process_stdin", handlers::write_process_stdin)
        .summary("Writes to the standard input of a program.")
        .body::<WriteProcessStdin>()
        .returns::<WrittenProcessStdin>()
        .refuses([("409", "The process has ended, or has closed its standard input")]);
    api.post("/browsers/{id_or_name}/process/{process_id}/kill", "kill_process", handlers::kill_process)
        .summary("Sends a signal to a program and its process group.")
        .body::<KillProcess>()
        .returns::<Done>()
        .refuses([("400", "The signal does not exist"), ("409", "The process has ended")]);
    api.post("/browsers/{id_or_name}/process/{process_id}/resize", "resize_process", handlers::resize_process)
        .summary("Resizes the terminal of a program.")
        .body::<ResizeProcess>()
        .returns::<Done>()
        .refuses([("409", "The process has ended, or has no terminal")]);
    api.get(
        "/browsers/{id_or_name}/process/{process_id}/stdout/stream",
        "stream_process_output",
        handlers::stream_process_output,
    )
    .summary("Streams the output of a program: first what is stored, then new output, then its end.")
    .streams::<ProcessEvent>()
    .refuses([("429", "64 callers read the output of the session's processes")]);
}
