//! Parsers of the values of flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr as _;

use casement_domain::session::Tags;
use casement_egress::{Allow, SANDBOX_SOURCE_ADDRESSES};
use ipnet::IpNet;
use url::Url;

/// Parses the address to listen on.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.trim_start_matches("localhost").trim_start_matches([':', '*']).parse::<u16>() {
        Ok(port) => {
            format!("give an address and a port: 127.0.0.1:{port} for this machine only, 0.0.0.0:{port} for all")
        }
        Err(_) => "give an address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned(),
    })
}

/// Parses the host and the port by which other nodes reach this one.
pub(super) fn peer_address(text: &str) -> Result<String, String> {
    let url = Url::parse(&format!("tcp://{text}")).ok();
    let is_valid = url.is_some_and(|url| {
        url.host_str().is_some_and(|host| !host.is_empty())
            && url.port().is_some()
            && url.username().is_empty()
            && url.path().is_empty()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    if is_valid { Ok(text.to_owned()) } else { Err("give a host and a port, such as 10.0.0.5:8443".to_owned()) }
}

/// Parses a network, or one address.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<std::net::IpAddr>().map(IpNet::from);
    text.parse().or_else(|_| address()).map_err(|_| "must be an address or a network as 10.0.0.0/8".to_owned())
}

/// Parses a network of trusted proxies. Sandboxes are never trusted, so naming only their addresses would have no
/// effect.
pub(super) fn trusted_proxy(text: &str) -> Result<IpNet, String> {
    let net = network(text)?;
    match SANDBOX_SOURCE_ADDRESSES.iter().any(|inside| IpNet::from(*inside) == net) {
        true => Err("is the source address of sandboxes; let the proxy connect to Casement from 127.0.0.1".to_owned()),
        false => Ok(net),
    }
}

/// Parses a host, alone or with a port.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    let bare = Url::parse(&format!("http://{text}")).is_ok_and(|url| {
        let nothing_else = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        nothing_else && url.username().is_empty() && url.password().is_none() && !text.ends_with(':')
    });
    if bare && !text.contains(['/', '*']) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("must be as casement.example.com or casement.example.com:8443".into())
    }
}

/// Checks the name of a bucket. Stores other than AWS also allow capitals and underscores.
pub(super) fn bucket_name(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let has_ends = text.starts_with(|first: char| first.is_ascii_alphanumeric()) && !text.contains("..");
    if is_plain && has_ends && (3..=63).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err("must be the name of a bucket, without a URL: 3 to 63 letters, digits, points, _ and -".into())
    }
}

/// Parses a name and a file, as `NAME=FILE`.
pub(super) fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) =
        text.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty()).ok_or("must be NAME=FILE")?;
    let bad = name.chars().any(char::is_control) || name.contains('/') || name.chars().count() > 255;
    if bad {
        Err("the name has at most 255 characters, none of them '/' or a control character".into())
    } else {
        Ok((name.to_owned(), file.into()))
    }
}

/// Parses a URL that can be requested.
/// Parses a label of a node, as KEY=VALUE.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    let label = (key.trim().to_owned(), value.trim().to_owned());
    Tags::parse([label.clone()].into()).map_err(|invalid| invalid.message)?;
    Ok(label)
}

pub(super) fn plain_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let readable = matches!(url.scheme(), "http" | "https") && url.host().is_some();
    if readable { Ok(url) } else { Err("must be an http or https URL with a host".into()) }
}

/// Parses the URL of a package registry. Builds can read it, so it contains no password.
pub(super) fn registry_url(text: &str) -> Result<Url, String> {
    let url = plain_url(text)?;
    let anonymous = url.username().is_empty() && url.password().is_none();
    if anonymous {
        Ok(url)
    } else {
        Err("must be without a user and a password: programs that are built see it".into())
    }
}

/// Parses a URL that clients can use: HTTP, a host, no path.
/// Parses a share, from 0 to 1.
pub(super) fn ratio(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|ratio| (0.0..=1.0).contains(ratio))
        .ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

pub(super) fn public_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("must be an http or https URL with a host".into());
    }
    let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let anonymous = url.username().is_empty() && url.password().is_none();
    if bare && anonymous { Ok(url) } else { Err("must end behind the host and port".into()) }
}

/// Parses a host and a port.
pub(super) fn host_and_port(text: &str) -> Result<String, String> {
    let named = text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if named && Allow::from_str(text).is_ok() {
        Ok(text.to_owned())
    } else {
        Err("must be as registry.example:443".to_owned())
    }
}
