//! The routes `…/webmcp`: tools that pages offer to agents, and custom tools that callers add.

mod custom;

use actix_web::HttpResponse;
use casement_domain::webmcp::{CustomSource, NewToolCall, PageTool, ToolHints, ToolResult, ToolStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    answer::Answer,
    client_timeout::client_timeout,
    error::ApiError,
    operation::Operations,
    request::{ActiveSession, Request},
    schema::{IntoParams, ToSchema},
};

/// The tools of a session's pages.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PageTools)]
pub(crate) struct ToolsBody {
    /// At most 1,000 tools of all tabs and embedded frames.
    tools: Vec<ToolBody>,
}

/// A tool that a document has registered, or a custom tool for a page.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PageTool)]
pub(crate) struct ToolBody {
    /// The reference by which the tool is called. Not valid any more when its document or its definition changes.
    tool_ref: String,
    tool: MetadataBody,
    source: SourceBody,
}

/// The description of a tool, in the words of the page, or of the caller for a custom tool.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolMetadata)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MetadataBody {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    description: String,
    /// The JSON schema of the input; `{}` if the page gives none.
    #[schema(value_type = Object)]
    input_schema: Box<RawValue>,
    /// The JSON schema of the output, if one is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    output_schema: Option<Box<RawValue>>,
    annotations: AnnotationsBody,
}

impl MetadataBody {
    fn new(
        name: String,
        title: Option<String>,
        description: String,
        schemas: (String, Option<String>),
        hints: ToolHints,
    ) -> Result<Self, ApiError> {
        let (input, output) = schemas;
        Ok(Self {
            name,
            title,
            description,
            input_schema: RawValue::from_string(input).map_err(ApiError::internal)?,
            output_schema: output.map(RawValue::from_string).transpose().map_err(ApiError::internal)?,
            annotations: AnnotationsBody::from(hints),
        })
    }
}

/// Hints, which nothing enforces. Those that are not given are absent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolAnnotations)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnnotationsBody {
    /// The tool changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_only_hint: Option<bool>,
    /// The output may contain texts of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    untrusted_content_hint: Option<bool>,
    /// The tool has consequences, such as a payment.
    #[serde(skip_serializing_if = "Option::is_none")]
    consequential_hint: Option<bool>,
    /// For a form: whether it is submitted when it is filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    autosubmit: Option<bool>,
    /// The tool deletes or overwrites.
    #[serde(skip_serializing_if = "Option::is_none")]
    destructive_hint: Option<bool>,
    /// A second call with the same input changes nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotent_hint: Option<bool>,
    /// The tool reaches things outside of the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_world_hint: Option<bool>,
}

impl From<ToolHints> for AnnotationsBody {
    fn from(hints: ToolHints) -> Self {
        Self {
            read_only_hint: hints.read_only,
            untrusted_content_hint: hints.untrusted_content,
            consequential_hint: hints.consequential,
            autosubmit: hints.autosubmit,
            destructive_hint: hints.destructive,
            idempotent_hint: hints.idempotent,
            open_world_hint: hints.open_world,
        }
    }
}

/// Where a tool was registered.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolSource)]
pub(crate) struct SourceBody {
    /// The number of the browser window.
    window_id: u64,
    /// The number of the tab, which rises with each tab.
    tab_id: u64,
    page_title: String,
    /// The URL of the page, without the fragment.
    page_url: String,
    /// The embedded frame that registered the tool; null for the page itself and for custom tools.
    frame: Option<FrameBody>,
    /// The custom tool; absent for the tools of the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<CustomSourceBody>,
    /// The debugging target of the page, for a custom tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    target_id: Option<String>,
}

/// The custom tool that a tool of a page comes from.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CustomToolSource)]
pub(crate) struct CustomSourceBody {
    id: String,
    namespace: String,
}

/// An embedded frame.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolFrame)]
pub(crate) struct FrameBody {
    /// The number of the frame, which rises with each frame.
    frame_id: u64,
    /// The URL of the frame, without the fragment.
    url: String,
}

impl ToolBody {
    fn new(tool: PageTool) -> Result<Self, ApiError> {
        let schemas = (tool.input_schema.unwrap_or_else(|| "{}".to_owned()), tool.output_schema);
        let (custom, target_id) = tool
            .custom
            .map(|CustomSource { id, namespace, target_id }| (CustomSourceBody { id, namespace }, target_id))
            .unzip();
        Ok(Self {
            tool_ref: tool.tool_ref,
            tool: MetadataBody::new(tool.name, tool.title, tool.description, schemas, tool.hints)?,
            source: SourceBody {
                window_id: tool.window_id,
                tab_id: tool.tab_id,
                page_title: tool.page_title,
                page_url: tool.page_url,
                frame: tool.frame.map(|frame| FrameBody { frame_id: frame.frame_id, url: frame.url }),
                custom,
                target_id,
            },
        })
    }
}

/// Which tools to list.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ListTools {
    /// Whether custom tools are left out. Default: false.
    exclude_custom: Option<bool>,
}

/// The call of a tool.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = InvokeTool)]
pub(crate) struct Invoke {
    /// The reference of the tool, from the list. Required.
    #[schema(required, nullable = false)]
    tool_ref: Option<String>,
    /// The input, at most 1 MiB as JSON. Required.
    #[schema(required, nullable = false)]
    input: Option<Map<String, Value>>,
    /// The timeout in seconds, 1 to 600. Default: 60. The call ends earlier if the client announces an earlier timeout.
    timeout_sec: Option<i64>,
}

/// The result of a tool.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolResult)]
pub(crate) struct ResultBody {
    invocation_id: String,
    /// `completed`; `canceled` by the page; `error`; or `awaiting_submission`: a form is filled in and not submitted.
    status: &'static str,
    /// The output of the tool, in the page's own words; at most 4 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Box<RawValue>>,
    /// The error of the page. With `outcome_unknown: ` before a reason, the tool may have had effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_text: Option<String>,
}

impl ResultBody {
    fn new(result: ToolResult) -> Result<Self, ApiError> {
        Ok(Self {
            invocation_id: result.invocation_id,
            status: match result.status {
                ToolStatus::Completed => "completed",
                ToolStatus::Canceled => "canceled",
                ToolStatus::Error => "error",
                ToolStatus::AwaitingSubmission => "awaiting_submission",
            },
            output: result.output.map(RawValue::from_string).transpose().map_err(ApiError::internal)?,
            error_text: result.error,
        })
    }
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Tools of pages", "The session does not exist");
    api.get("/browsers/{id_or_name}/webmcp/tools", "list_page_tools", list_page_tools)
        .summary(
            "Lists the tools that the session's pages and their embedded frames offer by WebMCP, and the custom tools for them.",
        )
        .query::<ListTools>()
        .returns::<ToolsBody>();
    api.post("/browsers/{id_or_name}/webmcp/invoke", "invoke_page_tool", invoke_page_tool)
        .summary("Invokes a tool and waits for its result. A form that is not submitted by itself is only filled in.")
        .body::<Invoke>()
        .responds::<ResultBody>("200", "The tool has ended; `status` says how")
        .refuses([
            ("400", "A field breaks a rule, or the browser does not know WebMCP"),
            ("404", "The session does not exist, or the reference is not valid any more"),
            ("409", "The page has an open dialog or has crashed"),
            ("429", "Too many scripts wait before the custom tool"),
        ]);
    custom::operations(api);
}

async fn list_page_tools(request: Request<ActiveSession>) -> Answer {
    let ListTools { exclude_custom } = request.query()?;
    let excludes_custom = exclude_custom.unwrap_or_default();
    let tools = request.while_served(request.services().page_tools.list(request.session(), excludes_custom)).await?;
    let tools = tools.into_iter().map(ToolBody::new).collect::<Result<_, _>>()?;
    Ok(HttpResponse::Ok().json(ToolsBody { tools }))
}

async fn invoke_page_tool(mut request: Request<ActiveSession>) -> Answer {
    let Invoke { tool_ref, input, timeout_sec } = request.json().await?;
    let input = input.map(|input| Value::Object(input).to_string());
    let call = NewToolCall::parse(tool_ref, input, timeout_sec, client_timeout(request.headers()))?;
    let result = request.while_served(request.services().page_tools.call(request.session(), call)).await?;
    Ok(HttpResponse::Ok().json(ResultBody::new(result)?))
}
