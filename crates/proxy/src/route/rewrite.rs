//! The replacement of the path prefix of a route.
//!
//! The prefix is found in the path as the client wrote it, apart from percent-encoding. The new path must stay below the new
//! prefix for every kind of server ([`super::path`]): otherwise `/api/../api/x`, which every server reads as a path of the
//! route `/api`, would become `/v2/../api/x`, which leads out of `/v2`.
//! **Source**: `ReplacePrefixMatch` of the Gateway API (`HTTPPathModifier`), for slashes at the ends of prefixes.

use super::path::{self, Prefix};
use super::{LEAF_PATHS, NO_ROUTE};
use curtail_http::head::Fault;
use http::StatusCode;

const AMBIGUOUS_REWRITE: Fault = Fault {
    status: StatusCode::BAD_REQUEST,
    error: "ambiguous_path",
    why: "the path prefix of the route cannot be replaced, because servers may interpret the request path in different ways",
};

/// The path prefix of a route, and the one that replaces it.
#[derive(Clone, Debug)]
pub(crate) struct PrefixRewrite {
    /// Without a slash at its end.
    from: Box<str>,
    /// The number of segments of `from`.
    segments: usize,
    /// Without a slash at its end.
    to: Box<str>,
    to_prefix: Prefix,
    /// Whether `to` lies below `from`.
    is_below: bool,
}

impl PrefixRewrite {
    pub(crate) fn new(from: &str, to: &str) -> Self {
        let [from, to] = [from, to].map(|prefix| prefix.strip_suffix('/').unwrap_or(prefix));
        let segments = from.bytes().filter(|byte| *byte == b'/').count();
        let [from_prefix, to_prefix] =
            [from, to].map(|prefix| Prefix::new(if prefix.is_empty() { "/" } else { prefix }));
        let is_below = !path::are_same_prefix(from, to)
            && path::readings(to).all(|reading| from_prefix.contains(&reading));
        Self { from: from.into(), segments, to: to.into(), to_prefix, is_below }
    }

    /// Whether a path of the route has the new prefix already, because that lies below the old one: every kind of server
    /// reads the path so.
    pub(super) fn has_new_prefix(&self, path: &str) -> bool {
        self.is_below && path::readings(path).all(|reading| self.to_prefix.contains(&reading))
    }

    /// The path with the new prefix.
    ///
    /// # Errors
    /// When the path does not begin with the prefix, leads out of the new one, or leads to the paths of leaves.
    pub(crate) fn apply(&self, path: &str) -> Result<String, Fault> {
        let mut slashes = memchr::memchr_iter(b'/', path.as_bytes());
        let (prefix, rest) = path.split_at(slashes.nth(self.segments).unwrap_or(path.len()));
        let is_prefix = prefix == &*self.from || path::are_same_prefix(prefix, &self.from);
        if !is_prefix {
            return Err(AMBIGUOUS_REWRITE);
        }
        let mut rewritten = [&self.to, rest].concat();
        if rewritten.is_empty() {
            rewritten.push('/');
        }
        if !path::is_plain(&rewritten) {
            for reading in path::readings(&rewritten) {
                if reading.path.starts_with(LEAF_PATHS) {
                    return Err(NO_ROUTE);
                }
                if !self.to_prefix.contains(&reading) {
                    return Err(AMBIGUOUS_REWRITE);
                }
            }
        }
        Ok(rewritten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_at_the_ends_of_prefixes_have_no_meaning() {
        // The table of `ReplacePrefixMatch`, and the root as a prefix.
        for (path, from, to, expected) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "/", "/bar"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/", "/", "/xyz", "/xyz/"),
            ("/foo", "/", "/xyz", "/xyz/foo"),
            ("/foo", "/", "/", "/foo"),
            ("/a/b/c", "/a/b", "/c", "/c/c"),
            ("/foo//bar", "/foo", "/xyz", "/xyz//bar"),
            ("/foo/bar", "/foo", "/foo/bar", "/foo/bar/bar"),
        ] {
            let rewrite = PrefixRewrite::new(from, to);
            assert_eq!(rewrite.apply(path).as_deref(), Ok(expected), "{path}: {from} to {to}");
        }
    }

    #[test]
    fn a_prefix_is_found_in_every_encoding_and_the_rest_stays_as_it_is() {
        for (path, from, to, expected) in [
            ("/%66oo/b%61r", "/foo", "/xyz", "/xyz/b%61r"),
            ("/caf%c3%a9/x", "/caf%C3%A9", "/tea", "/tea/x"),
            ("/a%2fb/c", "/a%2Fb", "/xyz", "/xyz/c"),
            ("/foo/x/../y;z", "/foo", "/caf%C3%A9", "/caf%C3%A9/x/../y;z"),
            ("/foo/x%2fy", "/foo", "/xyz", "/xyz/x%2fy"),
        ] {
            let rewrite = PrefixRewrite::new(from, to);
            assert_eq!(rewrite.apply(path).as_deref(), Ok(expected), "{path}: {from} to {to}");
        }
    }

    #[test]
    fn a_path_that_a_server_reads_outside_of_the_new_prefix_is_rejected() {
        for (path, from, to, expected) in [
            ("/foo/../foo/x", "/foo", "/xyz", AMBIGUOUS_REWRITE),
            ("/x/../foo", "/foo", "/xyz", AMBIGUOUS_REWRITE),
            ("//foo", "/foo", "/xyz", AMBIGUOUS_REWRITE),
            ("/foo;a/x", "/foo", "/xyz", AMBIGUOUS_REWRITE),
            ("/../x", "/", "/xyz", AMBIGUOUS_REWRITE),
            ("/%2e%2e/x", "/", "/xyz", AMBIGUOUS_REWRITE),
            ("/foo/..%2fx", "/foo", "/xyz", AMBIGUOUS_REWRITE),
            ("/foo/.curtail/load", "/foo", "/", NO_ROUTE),
            ("/foo//.curtail/load", "/foo", "/", NO_ROUTE),
            ("/foo/%2ecurtail/load", "/foo", "/", NO_ROUTE),
            ("/foo/x/..;/.curtail/load", "/foo", "/", NO_ROUTE),
        ] {
            let rewrite = PrefixRewrite::new(from, to);
            assert_eq!(rewrite.apply(path), Err(expected), "{path}: {from} to {to}");
        }
    }
}
