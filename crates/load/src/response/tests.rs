use proptest::prelude::*;

use super::*;

/// Feeds the bytes in the given pieces and returns all responses, including the result of the peer's close.
fn read(pieces: &[&[u8]], close: bool) -> Result<Vec<Response>, Malformed> {
    let mut parser = Parser::default();
    let mut learned = Learned::new();
    let mut responses = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        while let Some((used, response)) = learned.feed(&mut parser, rest, false)? {
            responses.push(response);
            rest = &rest[used..];
        }
    }
    if close {
        responses.extend(parser.end()?);
    }
    Ok(responses)
}

fn at_every_byte(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.chunks(1).collect()
}

#[track_caller]
fn check(text: &str, expected: &[(u16, u64, bool)]) {
    let expected: Vec<Response> = expected
        .iter()
        .map(|(status, body_bytes, keep_alive)| Response {
            status: *status,
            body_bytes: *body_bytes,
            keep_alive: *keep_alive,
        })
        .collect();
    assert_eq!(read(&[text.as_bytes()], true).as_ref(), Ok(&expected), "whole");
    assert_eq!(read(&at_every_byte(text.as_bytes()), true).as_ref(), Ok(&expected), "byte by byte");
    for at in 0..text.len() {
        let (a, b) = text.as_bytes().split_at(at);
        assert_eq!(read(&[a, b], true).as_ref(), Ok(&expected), "split at {at}");
    }
}

#[track_caller]
fn refuse(text: &str, why: Malformed) {
    assert_eq!(read(&[text.as_bytes()], true), Err(why), "whole");
    assert_eq!(read(&at_every_byte(text.as_bytes()), true), Err(why), "byte by byte");
}

#[test]
fn lengths_chunks_and_ends() {
    check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", &[(200, 3, true)]);
    check("HTTP/1.1 200\r\ncontent-LENGTH:3\r\n\r\nabc", &[(200, 3, true)]);
    check("HTTP/1.1 200 OK\nContent-Length: 0\n\n", &[(200, 0, true)]);
    check("HTTP/1.1 204 No Content\r\n\r\n", &[(204, 0, true)]);
    check("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", &[(304, 0, true)]);
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n",
        &[(200, 13, true)],
    );
    check("HTTP/1.1 200 OK\r\n\r\nto the end", &[(200, 10, false)]);
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\nabc", &[(200, 3, false)]);
}

/// The head ends in a bare newline, and a chunk ends in bytes like the end of a head.
#[test]
fn chunks_are_not_learnt_as_a_head() {
    let start = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\n3\n\r\n\r\n";
    check(&format!("{start}0\n\n{start}0;longer\n\n"), &[(200, 3, true); 2]);
}

#[test]
fn several_and_interim_responses() {
    let one = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    check(&one.repeat(3), &[(200, 3, true); 3]);
    check(
        &format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n{one}"),
        &[(200, 3, true)],
    );
    refuse("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", Malformed::Switched);
}

#[test]
fn connections_that_do_not_stay() {
    let with = |head: &str| format!("{head}\r\nContent-Length: 0\r\n\r\n");
    check(&with("HTTP/1.1 200 OK\r\nConnection: close"), &[(200, 0, false)]);
    check(&with("HTTP/1.1 200 OK\r\nConnection: upgrade , Close"), &[(200, 0, false)]);
    check(&with("HTTP/1.0 200 OK"), &[(200, 0, false)]);
    check(&with("HTTP/1.0 200 OK\r\nConnection: Keep-Alive"), &[(200, 0, true)]);
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &[(200, 0, false)],
    );
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n0\r\n\r\n",
        &[(200, 0, false)],
    );
}

#[test]
fn garbage_is_named() {
    refuse("SSH-2.0-OpenSSH\r\n", Malformed::StatusLine);
    refuse("HTTP/2 200\r\n\r\n", Malformed::StatusLine);
    refuse("HTTP/1.1 099 x\r\n\r\n", Malformed::StatusLine);
    refuse("HTTP/1.1 2000\r\n\r\n", Malformed::StatusLine);
    refuse("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", Malformed::Field);
    refuse("HTTP/1.1 200 OK\r\nA: b\r\n folded: c\r\n\r\n", Malformed::Field);
    refuse("HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc", Malformed::Field);
    refuse("HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc", Malformed::Length);
    refuse("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", Malformed::Length);
    refuse("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", Malformed::Length);
    refuse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", Malformed::Chunk);
    refuse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", Malformed::Chunk);
    refuse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000000000000000\r\n", Malformed::Chunk);
}

#[test]
fn what_is_cut_off_is_named() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for at in 1..text.len() {
        assert_eq!(read(&[&text.as_bytes()[..at]], true), Err(Malformed::Truncated), "cut at {at}");
    }
    assert_eq!(read(&[b""], true), Ok(vec![]));
}

#[test]
fn heads_have_a_limit_and_long_fields_do_not_matter() {
    let cookie = |length: usize| format!("HTTP/1.1 200 OK\r\nSet-Cookie: {}\r\n", "x".repeat(length));
    check(&format!("{}Content-Length: 1\r\n\r\nx", cookie(300)), &[(200, 1, true)]);
    refuse(&cookie(HEAD_BYTES_MAX), Malformed::LongHead);
    refuse(&"HTTP/1.1 100 Continue\r\n\r\n".repeat(3000), Malformed::LongHead);
    refuse(
        &format!("HTTP/1.1 200 OK\r\nConnection: {}close\r\n\r\n", " ".repeat(LINE_BYTES_MAX)),
        Malformed::LongField,
    );
}

/// Cuts bytes at the given places, in any order.
fn cut<'a>(bytes: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

/// A response as text, with its body's length and whether it is chunked.
fn response() -> impl Strategy<Value = (String, Response)> {
    let fields = prop::collection::vec(("[A-Za-z][A-Za-z-]{0,8}", "[ -~]{0,150}"), 0..6);
    (200_u16..600, fields, prop::collection::vec(1_usize..50, 0..4), any::<bool>(), any::<bool>()).prop_map(
        |(status, fields, chunks, chunked, close)| {
            let bodyless = matches!(status, 204 | 304);
            let mut text = format!("HTTP/1.1 {status} X\r\n");
            for (name, value) in fields {
                text += &format!("x-{name}: {value}\r\n");
            }
            text += if close { "Connection: close\r\n" } else { "" };
            let body: usize = if bodyless { 0 } else { chunks.iter().sum() };
            text += &match chunked {
                true => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
                false => format!("Content-Length: {body}\r\n\r\n"),
            };
            match (bodyless, chunked) {
                (true, _) => {}
                (false, false) => text += &"b".repeat(body),
                (false, true) => {
                    for size in chunks {
                        text += &format!("{size:x}\r\n{}\r\n", "\n".repeat(size));
                    }
                    text += "0\r\n\r\n";
                }
            }
            (text, Response { status, body_bytes: body as u64, keep_alive: !close })
        },
    )
}

proptest! {
    #[test]
    fn splits_do_not_matter(
        responses in prop::collection::vec(response(), 1..4),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let text: String = responses.iter().map(|(text, _)| text.as_str()).collect();
        let expected: Vec<Response> = responses.iter().map(|(_, response)| *response).collect();
        prop_assert_eq!(read(&cut(text.as_bytes(), &places), false), Ok(expected));
    }

    #[test]
    fn any_bytes_give_the_same_however_they_come(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        prop_assert_eq!(read(&cut(&bytes, &places), true), read(&[&bytes], true));
    }

    /// A damaged response: one byte of a valid one is another.
    #[test]
    fn damage_gives_the_same_however_it_comes(
        (text, _) in response(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut bytes = text.into_bytes();
        let at = place.index(bytes.len());
        bytes[at] = byte;
        prop_assert_eq!(read(&cut(&bytes, &places), true), read(&[&bytes], true));
    }

    /// An independent check of heads: a head that httparse accepts gives its status here too.
    #[test]
    fn heads_are_what_httparse_reads((text, expected) in response()) {
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let mut head = httparse::Response::new(&mut fields);
        prop_assert!(head.parse(text.as_bytes()).unwrap().is_complete());
        prop_assert_eq!(head.code, Some(expected.status));
    }
}
