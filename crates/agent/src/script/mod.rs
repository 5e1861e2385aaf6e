//! Code of callers that runs beside the browser: scripts, in executors, and the REPL.

mod executor;
mod process;
mod repl;
mod runner;
mod running;

use std::sync::Arc;

use futures_util::future::join_all;
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;

use self::executor::Executor;
pub(crate) use self::process::RunnerConfig;
pub(crate) use self::repl::Repl;
pub(crate) use self::runner::Runner;
use crate::reply::{Answer, Refusal, empty, ok, read, read_within};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::script::{
    DELETE_EXECUTOR, DeleteExecutor, EXECUTE, EXECUTE_IN, ExecuteScript, ExecutorList, LIST_EXECUTORS,
    MAX_NAMED_EXECUTORS, ScriptEnd, Tab,
};

/// The longest request: code of 1 MiB, with the longest JSON encoding.
const MAX_REQUEST: usize = 8 << 20;

/// The executors of the session.
#[derive(Debug)]
pub(crate) struct Scripts {
    runner: Arc<Runner>,
    default: Arc<Executor>,
    /// The named executors, in the order of their creation.
    named: Mutex<Vec<Arc<Executor>>>,
}

impl Scripts {
    pub(crate) fn new(runner: Arc<Runner>) -> Self {
        let default = Arc::new(Executor::new(None, Arc::clone(&runner)));
        Self { runner, default, named: Mutex::default() }
    }

    /// Serves `/v1/script/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            EXECUTE => ok(&self.default.execute(read_within(body, MAX_REQUEST).await?).await?),
            EXECUTE_IN => {
                let request: ExecuteScript = read_within(body, MAX_REQUEST).await?;
                let executor = self.named(request.executor.as_deref())?;
                ok(&executor.execute(request).await?)
            }
            LIST_EXECUTORS => ok(&self.list().await),
            DELETE_EXECUTOR => self.delete(read(body).await?).await,
            other => Err(Refusal::no_operation(other)),
        }
    }

    /// Runs code of the agent on the default executor. Its `page` is that of the target, if one is given.
    pub(crate) async fn run(&self, script: ExecuteScript, target_id: Option<String>) -> Result<ScriptEnd, Refusal> {
        let tab = target_id.map(|target_id| Tab { target_id, created: false });
        self.default.execute_with(script, tab).await
    }

    /// Returns the executor with this name. Creates it if there is none.
    fn named(&self, name: Option<&str>) -> Result<Arc<Executor>, Refusal> {
        let Some(name) = name else { return Ok(Arc::clone(&self.default)) };
        let mut named = self.named.lock();
        if let Some(executor) = named.iter().find(|executor| executor.name() == Some(name)) {
            return Ok(Arc::clone(executor));
        }
        if named.len() >= MAX_NAMED_EXECUTORS {
            let names: Vec<&str> = named.iter().filter_map(|executor| executor.name()).collect();
            let message = format_args!(
                "the session has {MAX_NAMED_EXECUTORS} named executors, delete one of them: {}",
                names.join(", ")
            );
            return Err(Refusal::new(ErrorCode::InvalidState, message));
        }
        self.runner.folder()?;
        let executor = Arc::new(Executor::new(Some(name.to_owned()), Arc::clone(&self.runner)));
        named.push(Arc::clone(&executor));
        Ok(executor)
    }

    async fn list(&self) -> ExecutorList {
        let mut all = vec![Arc::clone(&self.default)];
        all.extend(self.named.lock().iter().map(Arc::clone));
        ExecutorList { executors: join_all(all.iter().map(|executor| executor.describe())).await }
    }

    async fn delete(&self, DeleteExecutor { name, close_tab }: DeleteExecutor) -> Answer {
        let Some(name) = name else {
            self.default.stop().await;
            return Ok(empty());
        };
        let removed = {
            let mut named = self.named.lock();
            let found = named.iter().position(|executor| executor.name() == Some(&*name));
            found.map(|found| named.remove(found))
        };
        let Some(executor) = removed else {
            return Err(Refusal::new(ErrorCode::Missing, format_args!("executor {name} not found")));
        };
        executor.stop().await;
        executor.leave_tab(close_tab).await;
        Ok(empty())
    }
}
