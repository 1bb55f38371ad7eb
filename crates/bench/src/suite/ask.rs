//! One request and its answer, beside the load: for readiness, validation, measures and data.
//!
//! A connection for each, in HTTP/1.1 and clear text; names are looked up each time. Bounded in time, and it ends
//! early when the suite does.

use crate::expect::Expect;
use crate::generator::{Answer, Stop};
use crate::target::Target;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// From one look at whether the suite ends to the next.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) method: &'a str,
    pub(super) url: &'a str,
    pub(super) headers: &'a [(String, String)],
    pub(super) body: &'a [u8],
    pub(super) expect: &'a Expect,
    pub(super) within: Duration,
}

impl<'a> Ask<'a> {
    /// A `GET`.
    pub(super) const fn get(url: &'a str, expect: &'a Expect, within: Duration) -> Self {
        Self { method: "GET", url, headers: &[], body: &[], expect, within }
    }

    /// The body of a good answer, where `expect` looks at it.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub(super) fn send(&self, stop: &Stop) -> Result<Vec<u8>, String> {
        let until = Instant::now() + self.within;
        let late = || format!("no answer within {:?}", self.within);
        let target = Target::look_up(self.url).map_err(|error| error.to_string())?;
        let address = target.addresses[0];
        let said = |error: std::io::Error| format!("{address}: {error}");
        let mut stream = TcpStream::connect_timeout(&address, self.within).map_err(said)?;
        stream.set_write_timeout(Some(self.within)).map_err(said)?;
        stream.set_read_timeout(Some(LOOK_EVERY)).map_err(said)?;
        stream.write_all(&self.head(&target)).map_err(said)?;
        stream.write_all(self.body).map_err(said)?;
        let mut answer = Answer::new(self.expect, false);
        let (mut input, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        while !answer.is_done() {
            if stop.is_told() {
                return Err("the suite ends".to_owned());
            }
            if Instant::now() >= until {
                return Err(late());
            }
            match stream.read(&mut piece) {
                Ok(0) => answer.closed().map_err(|failed| failed.text)?,
                Ok(n) => {
                    input.extend_from_slice(&piece[..n]);
                    let used = answer.feed(&input).map_err(|failed| failed.text)?;
                    input.drain(..used);
                }
                Err(error)
                    if [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted]
                        .contains(&error.kind()) => {}
                Err(error) => return Err(said(error)),
            }
        }
        answer.judge().map_err(|failed| failed.text)?;
        Ok(answer.into_body())
    }

    fn head(&self, target: &Target) -> Vec<u8> {
        let Self { method, headers, body, .. } = self;
        let Target { path, authority, .. } = target;
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n");
        if !body.is_empty() || *method != "GET" {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        for (name, value) in *headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}
