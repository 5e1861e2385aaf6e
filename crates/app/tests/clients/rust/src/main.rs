//! `rust-clients CLIENT ADDRESS PAGES_URL`: a program of another service, which only got another address. Prints the
//! title of a page and the kind of its screenshot.

use std::error::Error;

use chromiumoxide::Browser;
use chromiumoxide::page::ScreenshotParams;
use fantoccini::ClientBuilder;
use fantoccini::wd::Capabilities;
use futures::StreamExt as _;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [client, address, pages] = arguments.as_slice() else { return Err("CLIENT ADDRESS PAGES_URL".into()) };
    let green = format!("{pages}/green");
    let saw = match client.as_str() {
        "chromiumoxide" => chromiumoxide(address, &green).await?,
        "fantoccini" => fantoccini(address, &green).await?,
        _ => return Err("chromiumoxide or fantoccini".into()),
    };
    println!("{saw}");
    Ok(())
}

async fn chromiumoxide(address: &str, green: &str) -> Result<Value, Box<dyn Error>> {
    let (browser, mut handler) = Browser::connect(address).await?;
    let handling = tokio::spawn(async move { while handler.next().await.is_some() {} });
    let page = browser.new_page(green).await?;
    let title = page.get_title().await?;
    let picture = page.screenshot(ScreenshotParams::builder().build()).await?;
    page.close().await?;
    drop(browser);
    handling.abort();
    Ok(saw(title, &picture))
}

async fn fantoccini(address: &str, green: &str) -> Result<Value, Box<dyn Error>> {
    let mut capabilities = Capabilities::new();
    capabilities.insert("browserName".to_owned(), json!("chrome"));
    capabilities.insert("goog:chromeOptions".to_owned(), json!({ "args": ["--headless=new", "--no-sandbox"] }));
    let client = ClientBuilder::new(HttpConnector::new()).capabilities(capabilities).connect(address).await?;
    client.goto(green).await?;
    let mut saw = saw(Some(client.title().await?), &client.screenshot().await?);
    saw["session"] = client.capabilities().and_then(|all| all.get("casement:sessionId")).cloned().unwrap_or_default();
    client.close().await?;
    Ok(saw)
}

fn saw(title: Option<String>, picture: &[u8]) -> Value {
    json!({ "title": title, "screenshot": String::from_utf8_lossy(picture.get(1..4).unwrap_or_default()) })
}
