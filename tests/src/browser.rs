//! A headless Chromium, spoken to by its DevTools protocol over two pipes: messages are JSON, each ended by a zero byte.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest wait for something to appear on a page.
const PATIENCE: Duration = Duration::from_secs(30);

/// A browser with one page open.
pub struct Browser {
    child: Child,
    requests: File,
    answers: BufReader<File>,
    session: Option<String>,
    last: u64,
    /// What the page has reported beside answers, oldest first: requests, exceptions, lines of the console.
    pub events: Vec<Value>,
    _folder: TempDir,
}

impl Browser {
    /// Starts the browser of this machine; `None` with a notice if there is none.
    pub fn start() -> Option<Self> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let is_there = |name: &&str| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
        let Some(program) = names.into_iter().find(is_there) else {
            eprintln!("skipped: there is no Chromium; Debian: apt install chromium");
            return None;
        };
        let folder = TempDir::new().expect("a temporary folder");
        let pipe = |name: &str| folder.path().join(name);
        let made = Command::new("mkfifo").args([pipe("requests"), pipe("answers")]).status().expect("mkfifo");
        assert!(made.success(), "no pipes");
        // Root has no sandbox; the pages are our own.
        let command = "exec \"$0\" --headless --no-sandbox --disable-gpu --hide-scrollbars --disable-dev-shm-usage \
                       --user-data-dir=profile --remote-debugging-pipe about:blank 3<requests 4>answers";
        let mut sh = Command::new("sh");
        sh.current_dir(folder.path()).args(["-c", command, program]);
        let child = sh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("sh");
        // In the order in which the shell opens them: each side waits for the other.
        let requests = File::options().write(true).open(pipe("requests")).expect("a pipe");
        let answers = BufReader::new(File::open(pipe("answers")).expect("a pipe"));
        let mut browser =
            Self { child, requests, answers, session: None, last: 0, events: Vec::new(), _folder: folder };
        let target = browser.send("Target.createTarget", &json!({"url": "about:blank"}))["targetId"].clone();
        let session = browser.send("Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Network", "Runtime", "Log", "Accessibility"] {
            browser.send(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// The result of a method of the protocol.
    #[track_caller]
    pub fn send(&mut self, method: &str, parameters: &Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.requests.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        loop {
            let mut bytes = Vec::new();
            self.answers.read_until(0, &mut bytes).expect("the browser writes");
            assert_eq!(bytes.pop(), Some(0), "the browser has ended");
            let mut answer: Value = serde_json::from_slice(&bytes).expect("JSON");
            if answer["id"] != self.last {
                self.events.push(answer);
                continue;
            }
            assert!(answer.get("error").is_none(), "{method}: {answer}");
            return answer["result"].take();
        }
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.send("Runtime.evaluate", &parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        let started = Instant::now();
        while self.value(expression) != true {
            assert!(started.elapsed() < PATIENCE, "it does not become true: {expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens an address in a window of this size, light or dark.
    #[track_caller]
    pub fn open(&mut self, address: &str, (width, height): (u32, u32), scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.send("Emulation.setDeviceMetricsOverride", &size);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.send("Emulation.setEmulatedMedia", &media);
        self.send("Page.navigate", &json!({"url": address}));
        self.wait_for(&format!("document.readyState === 'complete' && location.href === {}", json!(address)));
    }

    /// Moves the mouse with its button down from the middle of one element to a place in another, as a share of its size.
    pub fn drag(&mut self, from: &str, to: &str, (right, down): (f64, f64)) {
        let mut place = |selector: &str, right: f64, down: f64| {
            let expression = format!(
                "(() => {{ const e = document.querySelector({}); e.scrollIntoView({{block: 'nearest'}}); \
                 const b = e.getBoundingClientRect(); return [b.left + {right} * b.width, b.top + {down} * b.height]; }})()",
                json!(selector)
            );
            let found = self.value(&expression);
            (found[0].clone(), found[1].clone())
        };
        // The second scroll may move the first element.
        place(from, 0.5, 0.5);
        let target = place(to, right, down);
        let source = place(from, 0.5, 0.5);
        for (kind, (x, y)) in [("mousePressed", &source), ("mouseMoved", &target), ("mouseReleased", &target)] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1});
            self.send("Input.dispatchMouseEvent", &event);
        }
    }

    /// Presses a key in the element that has the focus.
    pub fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if key.len() == 1 { key } else { "" };
            self.send("Input.dispatchKeyEvent", &json!({"type": kind, "key": key, "code": key, "text": text}));
        }
    }

    /// Saves what the window shows, if `GMM_PAGE_LOOK` names a folder, so that it can be looked at.
    pub fn look(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("GMM_PAGE_LOOK") else { return };
        std::fs::create_dir_all(&folder).expect("a folder");
        let answer = self.send("Page.captureScreenshot", &json!({"captureBeyondViewport": true}));
        let mut decode = Command::new("base64");
        let file = File::create(Path::new(&folder).join(format!("{name}.png"))).expect("a file");
        let mut decode = decode.arg("-d").stdin(Stdio::piped()).stdout(file).spawn().expect("base64");
        let data = answer["data"].as_str().expect("an image");
        decode.stdin.take().expect("a pipe").write_all(data.as_bytes()).expect("base64 reads");
        assert!(decode.wait().expect("an end").success());
    }

    /// Asserts that every request went to an address that starts with `own`, and that nothing failed in the page.
    #[track_caller]
    pub fn check_events(&mut self, own: &str) {
        self.value("0");
        let mut n = 0;
        for event in &self.events {
            match event["method"].as_str().unwrap_or_default() {
                "Network.requestWillBeSent" => {
                    let url = event["params"]["request"]["url"].as_str().expect("an address");
                    assert!(url.starts_with(own) || url.starts_with("data:"), "a request to {url}");
                    n += 1;
                }
                "Runtime.exceptionThrown" => panic!("{event}"),
                "Runtime.consoleAPICalled" if event["params"]["type"] == "error" => panic!("{event}"),
                "Log.entryAdded" if event["params"]["entry"]["level"] == "error" => panic!("{event}"),
                _ => (),
            }
        }
        assert!(n > 0, "no request was seen");
    }

    /// Asserts that everything that a screen reader offers to operate, and each image, has a name.
    #[track_caller]
    pub fn check_names(&mut self) {
        let tree = self.send("Accessibility.getFullAXTree", &json!({}));
        let roles = ["button", "combobox", "textbox", "spinbutton", "image", "link", "region", "table"];
        let mut n = 0;
        for node in tree["nodes"].as_array().expect("nodes") {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            if node["ignored"] == true || !roles.contains(&role) {
                continue;
            }
            // A table needs no name where the heading before it tells.
            let name = node["name"]["value"].as_str().unwrap_or_default();
            assert!(role == "table" || !name.trim().is_empty(), "a {role} has no name: {node}");
            n += 1;
        }
        assert!(n > 3, "{n} named elements");
    }

    /// Asserts that the page is no wider than the window: then it need not be scrolled sideways.
    #[track_caller]
    pub fn check_width(&mut self) {
        let expression = "document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]\
                          .filter(e => e.getBoundingClientRect().right > innerWidth && !e.closest('.scroll'))\
                          .map(e => e.outerHTML.slice(0, 80))";
        let beyond = self.value(expression);
        assert_eq!(beyond, json!([]), "beyond the right edge");
    }

    /// The contrast of the page's text to its background by WCAG 2, from 1 to 21.
    pub fn contrast(&mut self, selector: &str) -> f64 {
        let expression = format!(
            "(() => {{ const of = e => getComputedStyle(e); const text = of(document.querySelector({})).color; \
             return [text, of(document.body).backgroundColor].map(c => c.match(/[0-9.]+/g).slice(0, 3).map(Number)); }})()",
            json!(selector)
        );
        let colours = self.value(&expression);
        let luminance = |colour: &Value| -> f64 {
            let linear = |v: f64| if v <= 0.040_45 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) };
            let channels = crate::numbers(colour);
            channels.iter().zip([0.2126, 0.7152, 0.0722]).map(|(v, share)| share * linear(v / 255.0)).sum()
        };
        let (a, b) = (luminance(&colours[0]), luminance(&colours[1]));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser may have ended after a failed test.
        let _ended = self.requests.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(5) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
