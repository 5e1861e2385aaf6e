//! `/proxies`.

use actix_web::http::StatusCode;
use casement_domain::proxy::{Exit, Proxy, ProxyConfig, ProxyConfigRequest, ProxyFailure, ProxyFilter, ProxyRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer, Moment},
    caller::Authorized,
    error::{ApiError, ErrorBody},
    from_fields::{from_fields, option},
};

/// A proxy.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Proxy)]
pub(crate) struct ProxyBody {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    protocol: &'static str,
    /// `available` or `unavailable`, by the last check.
    status: &'static str,
    /// The reason why the last check failed: `unreachable`, `timeout`, `closed`, `reset`, `protocol`, `tls`,
    /// `authentication`, `unknown` or `target`.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'static str>,
    /// The hosts that are reached without it.
    bypass_hosts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_checked: Option<Moment>,
    /// The exit address at the last successful check.
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_address: Option<String>,
    config: ConfigBody,
}

/// The connection to a proxy.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProxyConfig)]
#[serde(untagged)]
enum ConfigBody {
    /// The address of a proxy of the caller's own.
    Own(OwnBody),
    /// The exit of a proxy that the operator rents.
    Rented(ExitBody),
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OwnProxy)]
struct OwnBody {
    host: String,
    port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<String>,
    /// Whether it has a password, which is never shown.
    has_password: bool,
}

/// The exit of a rented proxy; an absent field was not chosen.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProxyExit)]
struct ExitBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    country: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    city: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    os: Option<String>,
}

impl From<ProxyConfig> for ConfigBody {
    fn from(config: ProxyConfig) -> Self {
        match config {
            ProxyConfig::Own(own) => Self::Own(OwnBody {
                host: own.host,
                port: own.port,
                username: own.username,
                has_password: own.password.is_some(),
            }),
            ProxyConfig::Rented(Exit { country, state, city, zip, asn, os }) => {
                Self::Rented(ExitBody { country, state, city, zip, asn, os })
            }
        }
    }
}

impl From<Proxy> for ProxyBody {
    fn from(proxy: Proxy) -> Self {
        Self {
            id: proxy.id.to_string(),
            name: proxy.name.map(|name| name.as_str().to_owned()),
            kind: proxy.kind.as_str(),
            protocol: proxy.protocol.as_str(),
            status: proxy.status.as_str(),
            failure: proxy.failure.map(ProxyFailure::as_str),
            bypass_hosts: proxy.bypass.iter().map(ToString::to_string).collect(),
            last_checked: proxy.last_checked.map(Moment),
            ip_address: proxy.ip_address,
            config: proxy.config.into(),
        }
    }
}

/// A proxy to create.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = CreateProxy)]
pub(crate) struct ProxyInput {
    /// `custom` for one of your own; `datacenter`, `isp`, `residential` and `mobile` where this installation rents such. Required.
    #[serde(rename = "type")]
    #[schema(required, nullable = false)]
    kind: Option<String>,
    /// 1 to 255 characters; not unique.
    name: Option<String>,
    /// `http`, `https` or `socks5`. Default: `http`, or the protocol of a rented proxy.
    protocol: Option<String>,
    /// Host names, `*.` and a host name, addresses, networks as `10.0.0.0/8`; at most 100. Default: none.
    bypass_hosts: Option<Vec<String>>,
    /// Required for `custom`.
    config: Option<ConfigInput>,
}

/// The address of a proxy of your own, or the exit of a rented one.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = CreateProxyConfig)]
struct ConfigInput {
    /// A host name or an address. Required for `custom`, which also accepts the following fields up to the password.
    host: Option<String>,
    /// 1 to 65535. Required for `custom`.
    port: Option<i64>,
    username: Option<String>,
    password: Option<String>,
    /// Two letters, of ISO 3166-1. Default for `datacenter` and `isp`: `US`.
    country: Option<String>,
    /// Two letters. For `residential` and `mobile`.
    state: Option<String>,
    /// In lower case and without blanks; needs a country. For `residential` and `mobile`.
    city: Option<String>,
    /// Five digits. For `residential`.
    zip: Option<String>,
    /// A network, as `AS3215`. For `residential`.
    asn: Option<String>,
    /// `windows`, `macos` or `android`. For `residential`.
    os: Option<String>,
}

impl From<ConfigInput> for ProxyConfigRequest {
    fn from(config: ConfigInput) -> Self {
        let ConfigInput { host, port, username, password, country, state, city, zip, asn, os } = config;
        let exit = Exit { country, state, city, zip, asn, os };
        Self { host, port, username, password: password.map(Into::into), exit }
    }
}

from_fields!(ProxyInput => ProxyRequest {
    kind, name, protocol, bypass_hosts via Option::unwrap_or_default, config via option
});

/// The changes of a proxy.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ProxyChanges {
    /// 1 to 255 characters. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
}

/// The options of a check.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CheckProxy {
    /// An http or https URL to fetch through it. The result is returned then, and not stored.
    url: Option<String>,
}

/// Keeps a proxy. It is checked at once, for 10 s at most; one that does not work is kept as `unavailable`.
#[utoipa::path(
    post, path = "/proxies", tag = "Proxies", request_body = ProxyInput,
    responses(
        (status = 201, body = ProxyBody),
        (status = 400, description = "A field breaks a rule, or this installation has no proxies of that type", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 429, description = "The project has as many as it may have", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn create_proxy(mut caller: Authorized) -> Answer {
    let wish = caller.json::<ProxyInput>().await?.into();
    let kept = caller.finish(|services, scope| async move { services.proxies.create(&scope, wish).await }).await?;
    let body = ProxyBody::from(kept);
    Ok(answer::created(&format!("/proxies/{}", body.id), &body))
}

/// Lists proxies, newest first.
#[utoipa::path(
    get, path = "/proxies", tag = "Proxies",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("name" = Option<String>, Query, description = "The whole name, whatever the case and the accents"),
        ("query" = Option<String>, Query, description = "Part of name, host or exit address"),
    ),
    responses(
        (status = 200, body = [ProxyBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_proxies(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let given = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let filter = ProxyFilter { name: given("name")?, query: given("query")? };
    let page = caller.services().proxies.list(caller.scope(), &filter, query.page()?).await?;
    Ok(answer::list(&page.map(ProxyBody::from)))
}

/// Reads one proxy.
#[utoipa::path(
    get, path = "/proxies/{id}", tag = "Proxies", params(("id" = String, Path)),
    responses(
        (status = 200, body = ProxyBody),
        (status = 400, description = "The project's header holds no id", body = ErrorBody),
        (status = 403, description = "The key is of another project", body = ErrorBody),
        (status = 404, description = "There is no such proxy", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_proxy(caller: Authorized) -> Answer {
    let proxy = caller.services().proxies.get(caller.scope(), &caller.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &ProxyBody::from(proxy)))
}

/// Gives a proxy another name.
#[utoipa::path(
    patch, path = "/proxies/{id}", tag = "Proxies", params(("id" = String, Path)), request_body = ProxyChanges,
    responses(
        (status = 200, body = ProxyBody),
        (status = 400, description = "The name breaks a rule", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 404, description = "There is no such proxy", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn update_proxy(mut caller: Authorized) -> Answer {
    let which = caller.path("id")?;
    let ProxyChanges { name } = caller.json().await?;
    let proxy = caller.services().proxies.rename(caller.scope(), &which, name.as_deref()).await?;
    Ok(answer::record(StatusCode::OK, &ProxyBody::from(proxy)))
}

/// Deletes a proxy. Sessions that have it keep it.
#[utoipa::path(
    delete, path = "/proxies/{id}", tag = "Proxies", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "There is no such proxy", body = ErrorBody),
        (status = 409, description = "A browser pool uses it", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn delete_proxy(caller: Authorized) -> Answer {
    caller.services().proxies.delete(caller.scope(), &caller.path("id")?).await?;
    Ok(answer::nothing())
}

/// Checks a proxy, for 10 s at most.
#[utoipa::path(
    post, path = "/proxies/{id}/check", tag = "Proxies", params(("id" = String, Path)), request_body = CheckProxy,
    responses(
        (status = 200, body = ProxyBody),
        (status = 400, description = "The address may not be read", body = ErrorBody),
        (status = 404, description = "There is no such proxy", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn check_proxy(mut caller: Authorized) -> Answer {
    let which = caller.path("id")?;
    let url = caller.json::<CheckProxy>().await?.url;
    let checked =
        caller.finish(|services, scope| async move { services.proxies.check(&scope, &which, url.as_deref()).await });
    Ok(answer::record(StatusCode::OK, &ProxyBody::from(checked.await?)))
}
