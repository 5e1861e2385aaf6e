//! Tests with spellings of addresses that must be refused.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
};

use super::support::{Origin, Session};

const INNER_V4: [[u8; 4]; 14] = [
    [127, 0, 0, 1],
    [127, 0, 0, 2],
    [127, 255, 255, 254],
    [0, 0, 0, 0],
    [10, 0, 0, 1],
    [100, 100, 100, 200],
    [169, 254, 169, 254],
    [172, 17, 0, 1],
    [192, 0, 0, 192],
    [192, 168, 1, 1],
    [198, 18, 0, 1],
    [224, 0, 0, 1],
    [240, 0, 0, 1],
    [255, 255, 255, 255],
];

const INNER_V6: [&str; 14] = [
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::0001]",
    "[fd00:ec2::254]",
    "[FD00:EC2::254]",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[::1%25lo]",
    "[fec0::1]",
    "[ff02::1]",
    "[2001:db8::1]",
];

const NAMES: [&str; 12] = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "LocalHost.",
    "a.localhost",
    "a.b.localhost.",
    "localhost.localdomain",
    "metadata.google.internal",
    "METADATA.google.internal.",
    "metadata.goog",
    "loc%61lhost",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
];

fn spellings_of_v4([a, b, c, d]: [u8; 4]) -> Vec<String> {
    let number = u32::from_be_bytes([a, b, c, d]);
    let (last_two, last_three) = (number & 0xffff, number & 0xff_ffff);
    let dotted = format!("{a}.{b}.{c}.{d}");
    let mut all = vec![
        dotted.clone(),
        format!("{dotted}."),
        format!("user@{dotted}"),
        format!("1.1.1.1:80@{dotted}"),
        format!("{number}"),
        format!("{number}."),
        format!("{number:#x}"),
        format!("{number:#X}"),
        format!("0{number:o}"),
        format!("000{number:o}"),
        format!("0x0000{number:x}"),
        format!("{a}.{last_three}"),
        format!("{a}.{b}.{last_two}"),
        format!("{a:#x}.{last_three:#x}"),
        format!("{a:#x}.{b:#x}.{last_two:#x}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.000{b:o}.0{c:o}.00{d:o}"),
        format!("0{a:o}.{last_three}"),
        format!("{a:#x}.0{b:o}.{last_two}"),
        format!("{a}.{b:#x}.0{c:o}.{d}"),
        dotted.replace('.', "。"),
        dotted.replace('.', "．"),
        dotted.replace('.', "｡"),
        dotted.replace('.', "%2e"),
        dotted.replace('.', "%E3%80%82"),
        dotted.replace('0', "０").replace('1', "１").replace('2', "２"),
        dotted.replace('1', "①").replace('2', "②"),
        dotted.bytes().map(|byte| format!("%{byte:02x}")).collect(),
    ];
    all.extend(wrappings([a, b, c, d]));
    all
}

fn wrappings([a, b, c, d]: [u8; 4]) -> Vec<String> {
    let dotted = format!("{a}.{b}.{c}.{d}");
    let [high, low] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    vec![
        format!("[::ffff:{dotted}]"),
        format!("[::FFFF:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:ffff:{dotted}]"),
        format!("[::{dotted}]"),
        format!("[::{high:x}:{low:x}]"),
        format!("[::ffff:0:{dotted}]"),
        format!("[64:ff9b::{dotted}]"),
        format!("[64:ff9b:1::{dotted}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:4136:e378:8000:63bf:{:x}:{:x}]", !high, !low),
        format!("[2606:4700::5efe:{dotted}]"),
        format!("[fe80::200:5efe:{dotted}]"),
    ]
}

pub(crate) fn refused_hosts() -> BTreeSet<String> {
    let v4 = INNER_V4.into_iter().flat_map(spellings_of_v4);
    let v6 = INNER_V6.into_iter().chain(NAMES).map(str::to_owned);
    let multicast =
        (0u8..=0xf).map(|scope| format!("[{}]", Ipv6Addr::new(0xff00 | u16::from(scope), 0, 0, 0, 0, 0, 0, 1)));
    let private = (0..=255u8).step_by(5).map(|b| Ipv4Addr::new(10, b, 255 - b, b).to_string());
    v4.chain(v6).chain(multicast).chain(private).collect()
}

#[tokio::test]
async fn every_spelling_of_a_private_address_is_refused() {
    let canary = Origin::silent().await;
    let port = canary.address.port();
    let session = Session::open(&[]);
    let hosts = refused_hosts();
    assert!(hosts.len() >= 500, "the corpus has only {} spellings", hosts.len());
    for host in &hosts {
        for request in [
            format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            format!("GET HTTP://{host}/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        ] {
            let status = session.connect().await.ask(&request).await.status;
            assert!([400, 403].contains(&status), "{status} for {request:?}");
        }
    }
    assert_eq!(canary.connections(), 0);
    assert_eq!(session.names.requests(), 0, "an address or a refused name was looked up");
}

#[tokio::test]
async fn every_spelling_gets_the_same_refusal() {
    let session = Session::open(&[]);
    let refusal = session.get("http://127.0.0.1/").await;
    assert_eq!(refusal.status, 403);
    for host in
        ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1.", "u:p@127.0.0.1", "[::ffff:7f00:1]", "LOCALHOST."]
    {
        assert_eq!(session.get(&format!("http://{host}/")).await, refusal, "{host}");
    }
}
