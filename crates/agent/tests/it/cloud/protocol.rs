//! Requests as a server of EC2's query protocol gets them: read, and their signature (version 4) checked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream};

use ring::{digest, hmac};

pub(crate) struct Request {
    pub(crate) from: IpAddr,
    pub(crate) method: String,
    pub(crate) path: String,
    headers: BTreeMap<String, String>,
    body: String,
}

/// The credentials that the server accepts.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    pub(crate) id: &'static str,
    pub(crate) secret: &'static str,
    pub(crate) token: &'static str,
}

impl Request {
    /// Reads one; `None`: the connection ended before.
    pub(crate) fn read(stream: &TcpStream) -> Option<Request> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.trim().split_once(':') {
                Some((name, value)) => headers.insert(name.to_lowercase(), value.trim().to_owned()),
                None => break,
            };
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let from = stream.peer_addr().ok()?.ip();
        Some(Request { from, method, path, headers, body: String::from_utf8(body).unwrap() })
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The parameters of the form.
    pub(crate) fn parameters(&self) -> BTreeMap<String, String> {
        form_urlencoded::parse(self.body.as_bytes()).into_owned().collect()
    }

    /// The region for which it is signed by these keys, over what it has in it; `None`: it is not.
    pub(crate) fn region_signed_by(&self, keys: &Keys) -> Option<&str> {
        let field = |name: &str| {
            let from = self.header("authorization").split_once(&format!("{name}="))?.1;
            from.split([',', ' ']).next()
        };
        let (credential, names, signature) =
            (field("Credential")?, field("SignedHeaders")?, field("Signature")?);
        let (id, scope) = credential.split_once('/')?;
        let (day, region) = scope.strip_suffix("/ec2/aws4_request")?.split_once('/')?;
        let needed = ["host", "x-amz-date", "x-amz-security-token"];
        let has_all = needed.iter().all(|name| names.split(';').any(|signed| signed == *name));
        let lines: String = names.split(';').map(|name| format!("{name}:{}\n", self.header(name))).collect();
        let canonical = format!("{}\n{}\n\n{lines}\n{names}\n{}", self.method, self.path, sha256(&self.body));
        let date = self.header("x-amz-date");
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", sha256(&canonical));
        let mut key = format!("AWS4{}", keys.secret).into_bytes();
        for part in scope.split('/').chain([text.as_str()]) {
            key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
        }
        let is_signed = has_all
            && id == keys.id
            && date.starts_with(day)
            && self.header("x-amz-security-token") == keys.token
            && hex(&key) == signature;
        is_signed.then_some(region)
    }
}

/// Answers, and ends the connection.
pub(crate) fn answer(mut stream: &TcpStream, status: u16, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Answer\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    // The caller may be gone: an agent that ends does not wait.
    drop(stream.write_all((head + body).as_bytes()));
}

fn sha256(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
