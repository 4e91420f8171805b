import DefaultTheme from 'vitepress/theme'
import './diana.css'

export default DefaultTheme
