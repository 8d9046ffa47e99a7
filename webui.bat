@echo off
rem Sets up on first use, then starts Inline Core. All logic is in inline_core\launch\bootstrap.py.
setlocal
chcp 65001 >nul
set "HERE=%~dp0"
set "PYTHONUTF8=1"
where py >nul 2>nul && (
  py -3 "%HERE%inline_core\launch\bootstrap.py" %*
  exit /b
)
where python >nul 2>nul && (
  python "%HERE%inline_core\launch\bootstrap.py" %*
  exit /b
)
echo No Python was found. Install it with: winget install Python.Python.3.12 1>&2
exit /b 3
