//! One request and its answer, beside the load: for readiness, validation, measures and data.
//!
//! A connection for each, in HTTP/1.1 and clear text; names are looked up each time. Bounded in time, and it ends
//! early when the suite does.

use curtail_generator::expect::Expect;
use curtail_generator::target::Target;
use curtail_generator::{ResponseReader, Stop};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// From one look at whether the suite ends to the next.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A connection takes no longer than this, on whatever it waits for otherwise.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

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
        let patience = Patience { stop, until: Instant::now() + self.within, within: self.within };
        let target = Target::look_up(self.url).map_err(|error| error.to_string())?;
        let address = target.addresses[0];
        let said = |error: io::Error| format!("{address}: {error}");
        let mut stream = TcpStream::connect_timeout(&address, self.within.min(CONNECTED_WITHIN))
            .map_err(said)?;
        stream.set_write_timeout(Some(LOOK_EVERY)).map_err(said)?;
        stream.set_read_timeout(Some(LOOK_EVERY)).map_err(said)?;
        let head = self.head(&target);
        for mut bytes in [head.as_slice(), self.body] {
            while !bytes.is_empty() {
                let written = patience.wait(|| stream.write(bytes))?;
                bytes = &bytes[written..];
            }
        }
        let mut answer = ResponseReader::new(self.expect, false);
        let (mut input, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        while !answer.is_done() {
            match patience.wait(|| stream.read(&mut piece))? {
                0 => answer.closed().map_err(|failed| failed.text)?,
                n => {
                    input.extend_from_slice(&piece[..n]);
                    let used = answer.feed(&input).map_err(|failed| failed.text)?;
                    input.drain(..used);
                }
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

/// How long something is waited for.
struct Patience<'a> {
    stop: &'a Stop,
    until: Instant,
    within: Duration,
}

impl Patience<'_> {
    /// How many bytes there were, once there were any, or the end.
    fn wait(&self, mut attempt: impl FnMut() -> io::Result<usize>) -> Result<usize, String> {
        loop {
            match attempt() {
                Ok(n) => return Ok(n),
                Err(error)
                    if [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted]
                        .contains(&error.kind()) => {}
                Err(error) => return Err(error.to_string()),
            }
            if self.stop.is_stopped() {
                return Err("the suite ends".to_owned());
            }
            if Instant::now() >= self.until {
                return Err(format!("no answer within {:?}", self.within));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ask;
    use curtail_generator::Stop;
    use curtail_generator::expect::Expect;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    /// What comes of a `GET` that is answered by these bytes; without any, by silence.
    fn asked(
        answer: Option<&'static [u8]>,
        within: Duration,
        stop: &Stop,
    ) -> Result<Vec<u8>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/a?b=c", listener.local_addr().expect("it listens"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = [0; 4_096];
            let n = stream.read(&mut head).expect("a request");
            if let Some(answer) = answer {
                stream.write_all(answer).expect("it reads");
            } else {
                // Until the client has given up.
                let _end = stream.read(&mut [0; 1]);
            }
            String::from_utf8_lossy(&head[..n]).into_owned()
        });
        let expect = Expect { contains: vec!["x".to_owned()], ..Expect::default() };
        let result = Ask::get(&url, &expect, within).send(stop);
        let head = server.join().expect("it serves");
        assert!(head.starts_with("GET /a?b=c HTTP/1.1\r\nhost: 127.0.0.1:"), "{head}");
        result
    }

    #[test]
    fn an_answer_is_good_bad_or_none() {
        let (long, stop) = (Duration::from_secs(60), Stop::default());
        let good = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nax\r\n0\r\n\r\n";
        assert_eq!(asked(Some(good), long, &stop), Ok(b"ax".to_vec()));
        let bad = asked(Some(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"), long, &stop);
        assert_eq!(bad, Err("status 404".to_owned()));
        let lacks = asked(Some(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na"), long, &stop);
        assert!(lacks.expect_err("no x").contains("does not contain \"x\""));
        let cut = asked(Some(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nax"), long, &stop);
        assert!(cut.expect_err("cut").contains("closed before the end"));
        let none = asked(None, Duration::from_millis(200), &stop);
        assert_eq!(none, Err("no answer within 200ms".to_owned()));
        stop.stop();
        assert_eq!(asked(None, long, &stop), Err("the suite ends".to_owned()));
    }
}
