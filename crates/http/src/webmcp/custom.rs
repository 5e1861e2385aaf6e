//! The routes `…/webmcp/custom-tools`.

use actix_web::HttpResponse;
use casement_domain::webmcp::{CustomTool, CustomToolKind, NewCustomTools};
use serde::{Deserialize, Serialize};

use super::MetadataBody;
use crate::{
    answer::{self, Answer},
    error::ApiError,
    operation::Operations,
    request::{ActiveSession, Request},
    schema::ToSchema,
};

/// The longest body: a source whose characters beyond ASCII are escaped, and what surrounds it.
const MAX_BODY: usize = 3 * NewCustomTools::MAX_SOURCE + (64 << 10);

/// Custom tools, in the order in which they were added.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CustomTools)]
pub(crate) struct CustomToolsBody {
    /// At most 256 tools.
    tools: Vec<CustomToolBody>,
}

/// A tool that a caller has added to the session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CustomTool)]
pub(crate) struct CustomToolBody {
    id: String,
    namespace: String,
    /// Where the function runs: `page`, in the page; or `cdp`, beside the browser, as a script.
    kind: &'static str,
    #[serde(rename = "match")]
    matching: MatchBody,
    tool: MetadataBody,
}

/// The documents for which a custom tool is listed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CustomToolMatch)]
pub(crate) struct MatchBody {
    /// The tool is listed for each page that has a document, its own or that of an embedded frame, whose URL matches one of
    /// these patterns.
    url_patterns: Vec<String>,
}

/// Custom tools to add.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = AddCustomTools)]
pub(crate) struct Add {
    /// The namespace of the tools. Required.
    #[schema(required, nullable = false)]
    namespace: Option<String>,
    /// A JavaScript expression whose value is an array of 1 to 256 definitions. Evaluated beside the browser, as a script. At
    /// most 8,000,000 bytes. Required.
    #[schema(required, nullable = false)]
    source: Option<String>,
    /// Whether the tools replace all tools of the namespace. Default: false.
    force_overwrite_namespace: Option<bool>,
}

impl CustomToolsBody {
    fn new(tools: Vec<CustomTool>) -> Result<Self, ApiError> {
        Ok(Self { tools: tools.into_iter().map(CustomToolBody::new).collect::<Result<_, _>>()? })
    }
}

impl CustomToolBody {
    fn new(tool: CustomTool) -> Result<Self, ApiError> {
        let schemas = (tool.input_schema, tool.output_schema);
        Ok(Self {
            id: tool.id,
            namespace: tool.namespace,
            kind: match tool.kind {
                CustomToolKind::Page => "page",
                CustomToolKind::Cdp => "cdp",
            },
            matching: MatchBody { url_patterns: tool.url_patterns },
            tool: MetadataBody::new(tool.name, tool.title, tool.description, schemas, tool.hints)?,
        })
    }
}

pub(super) fn operations(api: &mut Operations) {
    api.post("/browsers/{id_or_name}/webmcp/custom-tools", "add_custom_tools", add_custom_tools)
        .summary("Adds tools of the caller to the session: all of a source, or none. They exist as long as the session.")
        .body::<Add>()
        .responds::<CustomToolsBody>("201", "The tools that were added")
        .refuses([
            ("400", "A field breaks a rule, the source is not valid, or no script runner is installed"),
            (
                "409",
                "The namespace has a tool of the same name, the session has too many tools, the source was not evaluated within 30 \
                 seconds, or a page has an open dialog",
            ),
            ("429", "Too many scripts wait"),
        ]);
    api.get("/browsers/{id_or_name}/webmcp/custom-tools", "list_custom_tools", list_custom_tools)
        .summary("Lists the tools that callers have added to the session.")
        .returns::<CustomToolsBody>()
        .refuses([("400", "The session was started by an earlier version of this server")]);
    api.delete("/browsers/{id_or_name}/webmcp/custom-tools/{id}", "remove_custom_tool", remove_custom_tool)
        .summary("Removes a tool that a caller has added. Calls that have begun continue.")
        .no_content("Removed")
        .refuses([
            ("400", "The session was started by an earlier version of this server"),
            ("404", "The session or the tool does not exist"),
        ]);
}

async fn add_custom_tools(mut request: Request<ActiveSession>) -> Answer {
    let Add { namespace, source, force_overwrite_namespace } = request.json_within(MAX_BODY).await?;
    let tools = NewCustomTools::parse(namespace, source, force_overwrite_namespace)?;
    let added = request.while_served(request.services().page_tools.add_custom(request.session(), tools)).await?;
    Ok(HttpResponse::Created().json(CustomToolsBody::new(added)?))
}

async fn list_custom_tools(request: Request<ActiveSession>) -> Answer {
    let tools = request.services().page_tools.list_custom(request.session()).await?;
    Ok(HttpResponse::Ok().json(CustomToolsBody::new(tools)?))
}

async fn remove_custom_tool(request: Request<ActiveSession>) -> Answer {
    let id = request.path("id")?;
    request.services().page_tools.remove_custom(request.session(), id).await?;
    Ok(answer::nothing())
}
