//! Method, fields, body and weight of a request.

use std::fs;

use ::load::{Ask, HttpRequest, HttpVersion, Target, plain};
use anyhow::Context;

use super::args::{HttpArg, RequestArgs};
use crate::exit::BadInput;

/// Gives the requests of a target their method, fields, body and weights, and the field that asks the server to close.
pub(super) fn dressed(mut target: Target, args: &RequestArgs, closes: bool) -> anyhow::Result<Target> {
    let http = [
        (args.http.is_some(), "--http"),
        (closes, "--no-keepalive"),
        (args.method.is_some(), "--method"),
        (!args.header.is_empty(), "--header"),
        (args.body.is_some(), "--body"),
        (!args.weights.is_empty(), "--weights"),
        (args.expect_status.is_some(), "--expect-status"),
        (args.expect_body.is_some(), "--expect-body"),
    ];
    let requests = match &mut target.ask {
        Ask::Http(requests) => requests,
        Ask::Raw(_) | Ask::Grpc { .. } => {
            return match http.iter().find(|(given, _)| *given) {
                Some((_, option)) => {
                    Err(BadInput(format!("{option} is only for http:// and https://")).into())
                }
                None => Ok(target),
            };
        }
    };
    if !args.weights.is_empty() && args.weights.len() != requests.len() {
        let text = format!("--weights has {} numbers for {} URLs", args.weights.len(), requests.len());
        return Err(BadInput(text).into());
    }
    if args.weights.contains(&0) {
        return Err(BadInput("--weights: the weight of a URL must be more than 0".to_owned()).into());
    }
    let body = args.body.as_deref().map(body).transpose()?.unwrap_or_default();
    let fields = args.header.iter().map(|text| field(text)).collect::<Result<Vec<_>, _>>()?;
    if closes && fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("connection")) {
        let text = "--no-keepalive sets the field Connection itself: leave out --header Connection";
        return Err(BadInput(text.to_owned()).into());
    }
    let usual = if args.body.is_some() { "POST" } else { "GET" };
    for (index, request) in requests.iter_mut().enumerate() {
        let dressed = HttpRequest {
            version: match args.http {
                Some(HttpArg::Http10) => HttpVersion::Http10,
                Some(HttpArg::Http11) | None => HttpVersion::Http11,
            },
            method: args.method.clone().unwrap_or_else(|| usual.to_owned()),
            fields: fields.clone(),
            body: body.clone(),
            weight: args.weights.get(index).copied().unwrap_or(1),
            ..request.clone()
        };
        *request = if closes { dressed.closing() } else { dressed };
    }
    Ok(target)
}

fn body(text: &str) -> anyhow::Result<Vec<u8>> {
    match text.strip_prefix('@') {
        Some(path) => fs::read(path).with_context(|| format!("read {}", plain(path))),
        None => Ok(text.as_bytes().to_vec()),
    }
}

fn field(text: &str) -> Result<(String, String), BadInput> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| BadInput(format!("`{text}` is not a field: `Name: value` is expected")))?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let (name, value) = field("X-Time: 12:30").unwrap();
        assert_eq!((name.as_str(), value.as_str()), ("X-Time", "12:30"));
        assert!(field("no colon").is_err());
    }
}
