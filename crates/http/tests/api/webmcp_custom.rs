//! The routes `…/webmcp/custom-tools`.

use casement_domain::{
    session_operation::OperationError,
    testing::{browser_id, session_id},
    webmcp::{CustomSource, CustomTool, CustomToolKind, NewCustomTools, PageTool, ToolHints},
};
use casement_http::Permission;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{
    support::TestApi,
    webmcp::{path, ports},
};

fn tool() -> CustomTool {
    CustomTool {
        id: "ct_a1".to_owned(),
        namespace: "shop".to_owned(),
        kind: CustomToolKind::Page,
        url_patterns: vec!["https://shop.example/*".to_owned()],
        name: "total".to_owned(),
        title: None,
        description: "sums".to_owned(),
        input_schema: r#"{"type":"object"}"#.to_owned(),
        output_schema: Some(r#"{"type":"object"}"#.to_owned()),
        hints: ToolHints { read_only: Some(true), destructive: Some(false), ..ToolHints::default() },
    }
}

fn described() -> Value {
    json!({ "tools": [{
        "id": "ct_a1", "namespace": "shop", "kind": "page", "match": { "url_patterns": ["https://shop.example/*"] },
        "tool": {
            "name": "total", "description": "sums", "inputSchema": { "type": "object" }, "outputSchema": { "type": "object" },
            "annotations": { "readOnlyHint": true, "destructiveHint": false },
        },
    }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_tools_are_added_listed_and_removed() {
    let mut ports = ports();
    ports.page_tools.expect_add_custom_tools().times(1).returning(|browser, tools| {
        let (namespace, source) = ("shop".to_owned(), "[…]".to_owned());
        assert_eq!((browser, tools), (browser_id(1), NewCustomTools { namespace, source, overwrites: true }));
        Ok(vec![tool()])
    });
    ports.page_tools.expect_custom_tools().times(1).returning(|_| Ok(vec![tool()]));
    ports.page_tools.expect_remove_custom_tool().times(1).returning(|_, id| {
        assert_eq!(id, "ct_a1");
        Ok(())
    });
    let api = TestApi::start(ports);
    let body = json!({ "namespace": "shop", "source": "[…]", "force_overwrite_namespace": true });
    let reply = api.post(&path("custom-tools"), body).await;
    assert_eq!((reply.status, reply.json()), (201, described()));
    let reply = api.get(&path("custom-tools")).await;
    assert_eq!((reply.status, reply.json()), (200, described()));
    assert_eq!(api.call("DELETE", &path("custom-tools/ct_a1"), "").await.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_tools_names_custom_tools_or_leaves_them_out() {
    let mut ports = ports();
    ports.page_tools.expect_tools().times(2).returning(|_, excludes_custom| {
        let (id, namespace, target_id) = ("ct_a1".to_owned(), "shop".to_owned(), "T1".to_owned());
        let custom = Some(CustomSource { id, namespace, target_id });
        Ok(if excludes_custom { Vec::new() } else { vec![PageTool { custom, ..PageTool::default() }] })
    });
    let api = TestApi::start(ports);
    let listed = api.get(&path("tools")).await.json();
    let source = &listed["tools"][0]["source"];
    assert_eq!(source["custom"], json!({ "id": "ct_a1", "namespace": "shop" }));
    assert_eq!((&source["target_id"], &source["frame"]), (&json!("T1"), &Value::Null));
    assert_eq!(api.get(&path("tools?exclude_custom=true")).await.json(), json!({ "tools": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_tools_out_of_bounds_are_refused_before_the_session_is_called() {
    let api = TestApi::start(ports());
    let reply = api.post(&path("custom-tools"), json!({ "namespace": "a b" })).await;
    let details = [
        "invalid_format: namespace: must consist of ASCII letters, digits, '_', '.' and '-'",
        "required: source: is required",
    ];
    assert_eq!((reply.status, reply.details()), (400, details.map(str::to_owned).to_vec()));
    let long = "x".repeat(NewCustomTools::MAX_SOURCE + 1);
    let reply = api.post(&path("custom-tools"), json!({ "namespace": "a", "source": long })).await;
    assert_eq!(reply.details(), ["too_long: source: must have at most 8000000 bytes"]);
    let longer = "x".repeat(3 * NewCustomTools::MAX_SOURCE + (1 << 20));
    let reply = api.post(&path("custom-tools"), json!({ "namespace": "a", "source": longer })).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "payload_too_large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_session_refuses_about_custom_tools_has_a_code() {
    for (refusal, status, code) in [
        (OperationError::Exists("the tool shop/total exists already".to_owned()), 409, "already_exists"),
        (OperationError::State("too many tools".to_owned()), 409, "invalid_state"),
        (OperationError::NotSupported("no script runner".to_owned()), 400, "not_supported"),
    ] {
        let mut ports = ports();
        ports.page_tools.expect_add_custom_tools().return_once(move |_, _| Err(refusal));
        let api = TestApi::start(ports);
        let reply = api.post(&path("custom-tools"), json!({ "namespace": "shop", "source": "[…]" })).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
    }
    let mut ports = ports();
    let missing = OperationError::Missing("the custom tool does not exist".to_owned());
    ports.page_tools.expect_remove_custom_tool().return_once(move |_, _| Err(missing));
    let reply = TestApi::start(ports).call("DELETE", &path("custom-tools/ct_none"), "").await;
    assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_to_view_adds_no_custom_tools() {
    let mut ports = ports();
    ports.page_tools.expect_add_custom_tools().times(1).returning(|_, _| Ok(Vec::new()));
    let api = TestApi::start(ports);
    let body = json!({ "namespace": "shop", "source": "[…]" }).to_string();
    for (permission, status) in [(Permission::Drive, 201), (Permission::View, 403)] {
        let route = format!("/vm/{}/webmcp/custom-tools?jwt={}", session_id(1), api.token(session_id(1), permission));
        let reply = api.request("POST", &route, &["content-type: application/json"], &body).await;
        assert_eq!(reply.status, status, "{reply}");
    }
}
