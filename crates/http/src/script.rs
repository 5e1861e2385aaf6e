//! The routes `…/playwright`: scripts with access to the session's browser, and the executors that run them.

use actix_web::HttpResponse;
use casement_domain::{
    field::InvalidInput,
    script::{Executor, ExecutorName, NewScript, ScriptEnd, ScriptTab},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    answer::{self, Answer, Moment},
    client_timeout::client_timeout,
    error::ApiError,
    operation::Operations,
    request::{ActiveSession, Request},
    schema::{IntoParams, ToSchema},
};

/// The script to run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ExecuteScript)]
pub(crate) struct Execute {
    /// TypeScript or JavaScript, 1 byte to 1 MiB: the body of an asynchronous function with `page`, `context` and
    /// `browser`, which may `await` and `return`. Required.
    #[schema(required, nullable = false)]
    code: Option<String>,
    /// The timeout in seconds, 1 to 600. Default: 60.
    timeout_sec: Option<i64>,
    /// The name of the executor, 1 to 64 letters, digits, `.`, `_` and `-`. A new name creates an executor, at most 8
    /// beside `default`. Default: `default`.
    executor: Option<String>,
}

/// The result of a script.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScriptEnd)]
pub(crate) struct EndBody {
    /// Whether the script completed with a JSON value or `undefined`.
    success: bool,
    /// The returned value; absent for `undefined`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// The message and the stack of an error, with the lines and columns of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The beginning of the script's standard output, at most 1 MiB.
    stdout: String,
    /// The beginning of the script's standard error, at most 1 MiB.
    stderr: String,
    /// The tab of `page`; absent if the script failed before it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tab: Option<TabBody>,
}

/// The tab of a script.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScriptTab)]
pub(crate) struct TabBody {
    /// Whether this call opened the tab.
    created: bool,
    /// The target of the page in the browser's debugging protocol.
    target_id: String,
}

impl EndBody {
    fn new(end: ScriptEnd) -> Result<Self, ApiError> {
        let ScriptEnd { success, result, error, stdout, stderr, tab } = end;
        let result = result.map(RawValue::from_string).transpose().map_err(ApiError::internal)?;
        let tab = tab.map(|ScriptTab { created, target_id }| TabBody { created, target_id });
        Ok(Self { success, result, error, stdout, stderr, tab })
    }
}

/// The executors of a session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExecutorList)]
pub(crate) struct ExecutorsBody {
    /// The default executor, then the named ones by age.
    executors: Vec<ExecutorBody>,
}

/// An executor. Its scripts run one after the other, beside those of other executors.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Executor)]
pub(crate) struct ExecutorBody {
    /// Its name; `default` for the executor of scripts that name none.
    name: String,
    /// Whether a script runs on it.
    busy: bool,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    /// When its last script started; the time of its creation before the first one.
    #[schema(value_type = String, format = DateTime)]
    last_used_at: Moment,
    /// The target of its tab; absent for `default`, which owns none.
    #[serde(skip_serializing_if = "Option::is_none")]
    target_id: Option<String>,
    /// The URL of its tab; absent if the tab is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl From<Executor> for ExecutorBody {
    fn from(executor: Executor) -> Self {
        Self {
            name: executor.name.as_str().to_owned(),
            busy: executor.is_busy,
            created_at: Moment(executor.created_at),
            last_used_at: Moment(executor.last_used_at.unwrap_or(executor.created_at)),
            target_id: executor.target_id,
            url: executor.url,
        }
    }
}

/// How to delete an executor.
#[derive(Deserialize, IntoParams)]
pub(crate) struct DeleteExecutor {
    /// Whether its tab is closed too. Default: true.
    close_tab: Option<bool>,
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Scripts", "The session does not exist");
    api.post("/browsers/{id_or_name}/playwright/execute", "execute_script", execute_script)
        .summary(
            "Runs a script in a new context with access to the session's browser. Scripts of one executor run one after the other, those \
             of different executors at the same time.",
        )
        .body::<Execute>()
        .responds::<EndBody>("200", "The script has ended; `success` says how")
        .refuses([
            ("400", "A field breaks a rule, or no script runner is installed"),
            ("409", "The session has 8 named executors, a page has an open dialog, or the tab of the executor has crashed"),
            ("429", "Too many scripts of the executor wait"),
        ]);
    api.get("/browsers/{id_or_name}/playwright/executors", "list_executors", list_executors)
        .summary("Lists the executors of a session: `default`, then the named ones by age.")
        .returns::<ExecutorsBody>();
    api.delete("/browsers/{id_or_name}/playwright/executors/{name}", "delete_executor", delete_executor)
        .summary(
            "Deletes an executor; its running and waiting scripts fail. `default` remains: only its running script fails, and it has no tab \
             to close.",
        )
        .query::<DeleteExecutor>()
        .no_content("Deleted")
        .refuses([("404", "The session or the executor does not exist")]);
}

async fn execute_script(mut request: Request<ActiveSession>) -> Answer {
    let Execute { code, timeout_sec, executor } = request.json().await?;
    let script = NewScript::parse(code, timeout_sec, executor.as_deref(), client_timeout(request.headers()))?;
    let end = request.while_served(request.services().scripts.execute(request.session(), script)).await?;
    Ok(HttpResponse::Ok().json(EndBody::new(end)?))
}

async fn list_executors(request: Request<ActiveSession>) -> Answer {
    let executors = request.services().scripts.executors(request.session()).await?;
    let executors = executors.into_iter().map(ExecutorBody::from).collect();
    Ok(HttpResponse::Ok().json(ExecutorsBody { executors }))
}

async fn delete_executor(request: Request<ActiveSession>) -> Answer {
    let DeleteExecutor { close_tab } = request.query()?;
    let name = ExecutorName::parse(&request.path("name")?).map_err(|bad| InvalidInput::of("name", bad))?;
    request.services().scripts.delete_executor(request.session(), name, close_tab.unwrap_or(true)).await?;
    Ok(answer::nothing())
}
