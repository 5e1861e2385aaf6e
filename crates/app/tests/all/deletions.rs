//! Tests that a session keeps what it uses when that is deleted meanwhile.

use casement_test_support::archives::python;
use casement_test_support::program::{Cdp, Shared};
use serde_json::json;

use super::extensions::{form, send};

/// A name to which only the proxy leads.
const SITE: &str = "http://kept.test";

#[test]
fn a_session_keeps_its_proxy_extension_and_profile_when_they_are_deleted() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::on_this_machine();
    pages.put(&format!("{SITE}/"), "<!doctype html><title>over the proxy</title>");
    let config = json!({ "host": "127.0.0.1", "port": pages.address().port() });
    let proxy = json!({ "type": "custom", "name": "kept", "config": config });
    let proxy = server.post("/proxies", &proxy)?.expect(201)?.json()?;
    let zip = python(
        "with zipfile.ZipFile(out, 'w') as z:
  z.writestr('manifest.json', '{\"manifest_version\":3,\"name\":\"x\",\"version\":\"1\",\"content_scripts\":[{\"matches\":[\"http://*/*\"],\"js\":[\"mark.js\"],\"run_at\":\"document_start\"}]}')
  z.writestr('mark.js', 'document.documentElement.dataset.extension = \"here\"')",
    )?;
    let extension = send(server, form("/extensions", &[("name", "kept")], &[("file", &zip)]))?.expect(201)?.json()?;
    let profile = server.post("/profiles", &json!({ "name": "kept" }))?.expect(201)?.json()?;
    let session = server.create(&json!({
        "headless": true,
        "timeout_seconds": 600,
        "proxy_id": proxy["id"],
        "extensions": [{ "name": "kept" }],
        "profile": { "name": "kept", "save_changes": true },
    }))?;

    let ids = [("proxies", proxy), ("extensions", extension), ("profiles", profile)];
    for (resource, record) in &ids {
        let path = format!("/{resource}/{}", record["id"].as_str().unwrap_or_default());
        server.delete(&path)?.expect(204)?;
        server.get(&path)?.expect(404)?;
    }
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.open(&page, &format!("{SITE}/"))?;
    let seen = client.evaluate(&page, "[document.title, document.documentElement.dataset.extension]")?;
    assert_eq!(seen, json!(["over the proxy", "here"]));
    client.evaluate(&page, "document.cookie = 'kept=1; max-age=9999'")?;
    drop(client);
    // The end saves nothing, and creates no profile again.
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    for (resource, record) in &ids {
        server.get(&format!("/{resource}/{}", record["id"].as_str().unwrap_or_default()))?.expect(404)?;
    }
    assert_eq!(server.get("/profiles?query=kept")?.expect(200)?.json()?, json!([]));
    Ok(())
}
